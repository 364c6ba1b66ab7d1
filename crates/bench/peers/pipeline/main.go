// Command pipeline publishes the messages that match a regular expression to another topic, in upper case. It is the
// example `pipeline` of pondhawk-client in Go, with paho.golang, and is measured beside it.
//
// usage: pipeline ADDRESS FILTER PATTERN TO WORKERS
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

// Maximum number of messages that the program has received and not acknowledged.
const receiveMaximum = uint16(100)

// Acknowledgements leave in batches. The default interval of 50 ms would be the limit of the throughput.
const acknowledgeInterval = time.Millisecond

// job is a message on its way, with the result of the last stage.
type job struct {
	message *paho.Publish
	text    []byte
}

func main() {
	if len(os.Args) != 6 {
		log.Fatal("usage: pipeline ADDRESS FILTER PATTERN TO WORKERS")
	}
	address, filter, to := os.Args[1], os.Args[2], os.Args[4]
	pattern := regexp.MustCompile(os.Args[3])
	workers, err := strconv.Atoi(os.Args[5])
	check(err)

	received := make(chan job)
	var from *paho.Client
	from = connect(address, paho.ClientConfig{
		ClientID:                   "pipeline-in",
		EnableManualAcknowledgment: true,
		SendAcksInterval:           acknowledgeInterval,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(message paho.PublishReceived) (bool, error) {
				received <- job{message: message.Packet}
				return true, nil
			},
		},
	})
	out := connect(address, paho.ClientConfig{ClientID: "pipeline-out"})

	matching := stage(received, workers, func(next job) (job, bool) {
		if !pattern.Match(next.message.Payload) {
			check(from.Ack(next.message))
			return next, false
		}
		return next, true
	})
	loud := stage(matching, workers, func(next job) (job, bool) {
		next.text = bytes.ToUpper(next.message.Payload)
		return next, true
	})
	published := stage(loud, workers, func(next job) (job, bool) {
		_, err := out.Publish(context.Background(), &paho.Publish{Topic: to, QoS: 1, Payload: next.text})
		check(err)
		return next, true
	})

	subscriptions := []paho.SubscribeOptions{{Topic: filter, QoS: 1}}
	_, err = from.Subscribe(context.Background(), &paho.Subscribe{Subscriptions: subscriptions})
	check(err)
	fmt.Printf("%s to %s\n", filter, to)
	for next := range published {
		check(from.Ack(next.message))
	}
}

// stage runs a function in some goroutines. Jobs for which it returns false end there.
func stage(from <-chan job, workers int, function func(job) (job, bool)) <-chan job {
	to := make(chan job)
	var running sync.WaitGroup
	for range workers {
		running.Add(1)
		go func() {
			defer running.Done()
			for next := range from {
				if done, isWanted := function(next); isWanted {
					to <- done
				}
			}
		}()
	}
	go func() {
		running.Wait()
		close(to)
	}()
	return to
}

func connect(address string, config paho.ClientConfig) *paho.Client {
	socket, err := net.Dial("tcp", address)
	check(err)
	config.Conn = socket
	client := paho.NewClient(config)
	maximum := receiveMaximum
	_, err = client.Connect(context.Background(), &paho.Connect{
		ClientID:   config.ClientID,
		CleanStart: true,
		KeepAlive:  60,
		Properties: &paho.ConnectProperties{ReceiveMaximum: &maximum},
	})
	check(err)
	return client
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
