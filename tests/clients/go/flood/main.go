// Publishes many messages with paho.golang, or receives them, and does nothing else: what is measured is the library.
//
// usage: flood {publish|receive} PORT {0|1} COUNT
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"

	"github.com/eclipse/paho.golang/paho"
)

// The others' too.
const (
	topic        = "flood"
	payloadBytes = 100
	window       = uint16(100)
)

func main() {
	role, port := os.Args[1], os.Args[2]
	qos, count := number(os.Args[3]), number(os.Args[4])
	if role == "publish" {
		publish(port, byte(qos), count)
	} else {
		receive(port, byte(qos), count)
	}
}

func publish(port string, qos byte, count int) {
	client := connect(port, "publisher", nil)
	payload := make([]byte, payloadBytes)
	ctx := context.Background()
	for range count - 1 {
		message := &paho.Publish{Topic: topic, QoS: qos, Payload: payload}
		_, err := client.PublishWithOptions(ctx, message, paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
		check(err)
	}
	// Acknowledgements come in order: with the last one all are there.
	_, err := client.Publish(ctx, &paho.Publish{Topic: topic, QoS: qos, Payload: payload})
	check(err)
	check(client.Disconnect(&paho.Disconnect{}))
}

func receive(port string, qos byte, count int) {
	all := make(chan struct{})
	received := 0
	client := connect(port, "subscriber", func(message paho.PublishReceived) (bool, error) {
		if len(message.Packet.Payload) != payloadBytes {
			log.Panicf("%d bytes", len(message.Packet.Payload))
		}
		received++
		if received == count {
			close(all)
		}
		return true, nil
	})
	subscriptions := []paho.SubscribeOptions{{Topic: topic, QoS: qos}}
	_, err := client.Subscribe(context.Background(), &paho.Subscribe{Subscriptions: subscriptions})
	check(err)
	fmt.Println("ready")
	<-all
	check(client.Disconnect(&paho.Disconnect{}))
}

func connect(port, name string, received func(paho.PublishReceived) (bool, error)) *paho.Client {
	socket, err := net.Dial("tcp", "127.0.0.1:"+port)
	check(err)
	config := paho.ClientConfig{ClientID: name, Conn: socket}
	if received != nil {
		config.OnPublishReceived = []func(paho.PublishReceived) (bool, error){received}
	}
	client := paho.NewClient(config)
	receiveMaximum := window
	_, err = client.Connect(context.Background(), &paho.Connect{
		ClientID:   name,
		CleanStart: true,
		KeepAlive:  60,
		Properties: &paho.ConnectProperties{ReceiveMaximum: &receiveMaximum},
	})
	check(err)
	return client
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
