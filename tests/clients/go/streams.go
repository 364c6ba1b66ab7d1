package main

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/quic-go/quic-go"
)

// isQUIC tells whether the clients connect over QUIC.
func isQUIC() bool { return os.Getenv("PONDHAWK_LINK") == "quic" }

// streamsOfOneConnectionShareASession opens four streams. The first one begins the session and receives the messages. The
// others subscribe and publish, and receive the answers to that.
func streamsOfOneConnectionShareASession() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	first, err := dialQUIC(ctx, net.JoinHostPort("127.0.0.1", port))
	check(err)
	connection := first.(*streamed).connection
	check(first.SetDeadline(time.Now().Add(30 * time.Second)))
	connect := packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "streams-" + rand.Text(), CleanStart: true, KeepAlive: 60,
	}
	send(first, &connect)
	receive[*packets.Connack](first)

	subscriber := open(ctx, connection)
	filter := packets.SubOptions{Topic: "streams/+", QoS: 0}
	send(subscriber, &packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{filter}})
	expect(receive[*packets.Suback](subscriber).PacketID, 1)

	publishers := []*quic.Stream{open(ctx, connection), open(ctx, connection)}
	for number := range count {
		for at, publisher := range publishers {
			send(publisher, &packets.Publish{
				PacketID: uint16(2*number + at + 1), QoS: 1, Topic: "streams/" + strconv.Itoa(at),
				Payload: []byte(strconv.Itoa(number)), Properties: &packets.Properties{},
			})
		}
	}
	for at, publisher := range publishers {
		for number := range count {
			expect(receive[*packets.Puback](publisher).PacketID, uint16(2*number+at+1))
		}
		check(publisher.Close())
	}
	next := map[string]int{}
	for range 2 * count {
		message := receive[*packets.Publish](first)
		expect(string(message.Payload), strconv.Itoa(next[message.Topic]))
		next[message.Topic]++
	}
	expect(next["streams/0"], count)
	expect(next["streams/1"], count)
	// Streams that have ended make room for others.
	for range 20 {
		pinging := open(ctx, connection)
		send(pinging, &packets.Pingreq{})
		check(pinging.Close())
		receive[*packets.Pingresp](first)
	}
	check(first.Close())
}

func open(ctx context.Context, connection *quic.Conn) *quic.Stream {
	stream, err := connection.OpenStreamSync(ctx)
	check(err)
	check(stream.SetDeadline(time.Now().Add(30 * time.Second)))
	return stream
}

func send(to interface{ Write([]byte) (int, error) }, packet packets.Packet) {
	_, err := packet.WriteTo(to)
	check(err)
}

// receive reads the next packet, which has to be of this type.
func receive[P packets.Packet](from interface{ Read([]byte) (int, error) }) P {
	packet, err := packets.ReadPacket(from)
	check(err)
	content, isExpected := packet.Content.(P)
	expect(isExpected, true)
	return content
}
