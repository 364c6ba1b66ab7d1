// What autopaho clients can say to each other through a broker, and what waits for them when they come back, step by
// step. They speak MQTT 5.0 only.
//
// usage: talk PORT {0|1|2}
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/eclipse/paho.golang/paho"
)

const count = 100

var (
	port string
	qos  byte
)

func main() {
	port = os.Args[1]
	number, err := strconv.Atoi(os.Args[2])
	check(err)
	qos = byte(number)
	step("many messages come in order", manyMessagesComeInOrder)
	step("a retained message waits for subscribers", aRetainedMessageWaitsForSubscribers)
	step("a will is published for who vanishes", aWillIsPublishedForWhoVanishes)
	step("a group shares its messages", aGroupSharesItsMessages)
	step("a request is answered where it asks to be", aRequestIsAnsweredWhereItAsksToBe)
	step("who wants none of its own messages gets none", whoWantsNoneOfItsOwnMessagesGetsNone)
	if qos > 0 {
		step("a session hears what was said while it was away", aSessionHearsWhatWasSaidWhileItWasAway)
		step("lost connections lose and repeat nothing", lostConnectionsLoseAndRepeatNothing)
	}
	if isQUIC() {
		step("streams of one connection share a session", streamsOfOneConnectionShareASession)
	}
	fmt.Println("all said")
}

func step(name string, carryOut func()) {
	fmt.Println(name)
	carryOut()
}

func sayAll(c *client, topic string) {
	for number := range count {
		c.say(topic, strconv.Itoa(number))
	}
}

// hearNumbers hears these numbers, each once and in order.
func hearNumbers(c *client, from, to int) {
	for next := from; next < to; next++ {
		expect(hearNumber(c), next)
	}
}

// hearNumbersAgain does the same where a connection was lost: QoS 1 may repeat some that were heard before.
func hearNumbersAgain(c *client, from, to int) {
	for next := from; next < to; next++ {
		number := hearNumber(c)
		for qos == 1 && number < next {
			number = hearNumber(c)
		}
		expect(number, next)
	}
}

func hearNumber(c *client) int {
	number, err := strconv.Atoi(string(c.hear().Payload))
	check(err)
	return number
}

func manyMessagesComeInOrder() {
	frog, toad := connect("frog", nature{}), connect("toad", nature{})
	frog.subscribe("count/+")
	sayAll(toad, "count/all")
	hearNumbers(frog, 0, count)
	frog.leave()
	toad.leave()
}

func aRetainedMessageWaitsForSubscribers() {
	frog, toad := connect("frog", nature{}), connect("toad", nature{})
	toad.subscribe("leaf/#")
	retain := func(payload string) {
		frog.publish(&paho.Publish{Topic: "leaf/a", Payload: []byte(payload), Retain: true})
		toad.expect("leaf/a", payload, false)
	}
	retain("green")
	retain("brown")
	newt := connect("newt", nature{})
	newt.subscribe("leaf/+")
	newt.expect("leaf/a", "brown", true)
	retain("")
	for _, c := range []*client{frog, toad, newt} {
		c.leave()
	}
}

func aWillIsPublishedForWhoVanishes() {
	frog := connect("frog", nature{})
	frog.subscribe("will/#")
	will := func(topic, payload string) nature {
		return nature{will: &paho.WillMessage{Topic: topic, Payload: []byte(payload), QoS: qos}}
	}
	connect("polite", will("will/polite", "never said")).leave()
	connect("rude", will("will/rude", "gone")).vanish()
	frog.expect("will/rude", "gone", false)
	frog.leave()
}

func aGroupSharesItsMessages() {
	frog, toad, newt := connect("frog", nature{}), connect("toad", nature{}), connect("newt", nature{})
	frog.subscribe("$share/pond/work")
	toad.subscribe("$share/pond/work")
	sayAll(newt, "work")
	var shares [2][]int
	for range count {
		var at int
		var message *paho.Publish
		select {
		case message = <-frog.messages:
		case message = <-toad.messages:
			at = 1
		case <-soon().Done():
			check(soon().Err())
		}
		number, err := strconv.Atoi(string(message.Payload))
		check(err)
		shares[at] = append(shares[at], number)
	}
	all := slices.Sorted(slices.Values(slices.Concat(shares[0], shares[1])))
	expect(len(slices.Compact(all)), count)
	expect(slices.IsSorted(shares[0]) && slices.IsSorted(shares[1]), true)
	expect(len(shares[0]) > 0 && len(shares[1]) > 0, true)
	for _, c := range []*client{frog, toad, newt} {
		c.leave()
	}
}

func aRequestIsAnsweredWhereItAsksToBe() {
	frog, toad := connect("frog", nature{}), connect("toad", nature{})
	frog.subscribe("ask")
	toad.subscribe("answers/toad")
	request := &paho.PublishProperties{ResponseTopic: "answers/toad", CorrelationData: []byte{0, 255, 7}}
	request.User.Add("colour", "green").Add("colour", "brown")
	toad.publish(&paho.Publish{Topic: "ask", Payload: []byte("how deep?"), Properties: request})
	asked := frog.expect("ask", "how deep?", false).Properties
	expect(fmt.Sprint(asked.User.GetAll("colour")), "[green brown]")
	answer := &paho.PublishProperties{CorrelationData: asked.CorrelationData}
	frog.publish(&paho.Publish{Topic: asked.ResponseTopic, Payload: []byte("two metres"), Properties: answer})
	answered := toad.expect("answers/toad", "two metres", false).Properties
	expect(string(answered.CorrelationData), string(request.CorrelationData))
	frog.leave()
	toad.leave()
}

func whoWantsNoneOfItsOwnMessagesGetsNone() {
	frog, toad := connect("frog", nature{}), connect("toad", nature{})
	frog.subscribe("both", func(options *paho.SubscribeOptions) { options.NoLocal = true })
	frog.say("both", "mine")
	toad.say("both", "theirs")
	frog.expect("both", "theirs", false)
	frog.leave()
	toad.leave()
}

func aSessionHearsWhatWasSaidWhileItWasAway() {
	frog, toad := connect("away", nature{lasting: true}), connect("toad", nature{})
	frog.subscribe("away/#")
	frog.leave()
	toad.subscribe("away/#")
	sayAll(toad, "away/from/home")
	hearNumbers(toad, 0, count)
	expect(frog.comeBack(), true)
	hearNumbers(frog, 0, count)
	frog.leave()
	toad.leave()
}

func lostConnectionsLoseAndRepeatNothing() {
	frog, toad := connect("unlucky", nature{lasting: true}), connect("speaker", nature{lasting: true})
	frog.subscribe("stream")
	sayAll(toad, "stream")
	quarter := count / 4
	hearNumbers(frog, 0, quarter)
	for from := quarter; from < count; from += quarter {
		toad.lose()
		frog.lose()
		hearNumbersAgain(frog, from, from+quarter)
	}
	frog.leave()
	toad.leave()
}
