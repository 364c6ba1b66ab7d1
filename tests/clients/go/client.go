package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/autopaho/queue/memory"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session/state"
)

const (
	deadline    = 10 * time.Second
	sessionSecs = 3600
	// More messages than any step has.
	capacity = 10_000
)

// A client keeps what happens to it until somebody asks. Its messages and subscriptions are at the QoS of this run.
type client struct {
	config   autopaho.ClientConfig
	manager  *autopaho.ConnectionManager
	messages chan *paho.Publish
	connacks chan *paho.Connack
	// The connection that was made last.
	present atomic.Pointer[socket]
}

// What a client is besides its name.
type nature struct {
	// Its session outlives its connections.
	lasting bool
	will    *paho.WillMessage
}

func connect(name string, its nature) *client {
	c := &client{
		messages: make(chan *paho.Publish, capacity),
		connacks: make(chan *paho.Connack, capacity),
	}
	server, err := url.Parse("mqtt://127.0.0.1:" + port)
	check(err)
	c.config = autopaho.ClientConfig{
		ServerUrls:                    []*url.URL{server},
		KeepAlive:                     60,
		CleanStartOnInitialConnection: !its.lasting,
		ReconnectBackoff:              autopaho.NewConstantBackoff(10 * time.Millisecond),
		Queue:                         memory.New(),
		WillMessage:                   its.will,
		AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, u *url.URL) (net.Conn, error) {
			connection, err := dial(ctx, u.Host)
			if err != nil {
				return nil, err
			}
			made := &socket{Conn: connection, owner: c}
			c.present.Store(made)
			return made, nil
		},
		OnConnectionUp: func(_ *autopaho.ConnectionManager, connack *paho.Connack) { c.connacks <- connack },
		ClientConfig: paho.ClientConfig{
			ClientID: name,
			// What this side knows of the session, for as long as it lasts.
			Session: patientSession{state.NewInMemory()},
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				func(received paho.PublishReceived) (bool, error) {
					c.messages <- received.Packet
					return true, nil
				},
			},
		},
	}
	if its.lasting {
		c.config.SessionExpiryInterval = sessionSecs
	}
	c.comeBack()
	return c
}

// paho.golang 0.23 answers PUBREC over a connection that it may just have given up, and ends the process for it. For us
// that is an answer that was not sent: the session has kept what it owes, and sends it over the next connection.
type patientSession struct{ *state.State }

func (s patientSession) PacketReceived(packet *packets.ControlPacket, publishes chan<- *packets.Publish) error {
	if packet.Type == packets.PUBREC {
		defer func() { _ = recover() }()
	}
	return s.State.PacketReceived(packet, publishes)
}

// A socket is a connection of one client. paho.golang 0.23 locks it before it writes a packet.
type socket struct {
	net.Conn
	sync.Mutex
	owner *client
}

// Lock closes the client's present connection if the packet is for an earlier one.
//
// autopaho makes a new paho client for each connection, and all of them share one session. The goroutine of the queue may
// still hold the earlier paho client when the new connection is up: it stores a message in the session, and writes it to
// the earlier connection, which is closed. Only the next reconnect would send that message, behind the messages that were
// queued after it. That reconnect has to come before these messages: it sends all stored messages in their order.
func (s *socket) Lock() {
	s.Mutex.Lock()
	if present := s.owner.present.Load(); present != s {
		_ = present.Close()
	}
}

// comeBack connects, with all that this side knows of the session, and returns whether the broker knows it too.
func (c *client) comeBack() bool {
	manager, err := autopaho.NewConnection(context.Background(), c.config)
	check(err)
	c.manager = manager
	return c.greeting()
}

func (c *client) greeting() bool {
	return within(c.connacks, "CONNACK").SessionPresent
}

func (c *client) leave() {
	check(c.manager.Disconnect(soon()))
}

// lose ends the connection without DISCONNECT, and waits until the client has made another by itself.
func (c *client) lose() {
	_ = c.present.Load().Close()
	expect(c.greeting(), true)
}

// vanish ends the connection without DISCONNECT, for good: what goes on behind it is nobody's affair.
func (c *client) vanish() {
	_ = c.present.Load().Close()
	_ = c.manager.Disconnect(soon())
}

func (c *client) subscribe(filter string, options ...func(*paho.SubscribeOptions)) {
	subscription := paho.SubscribeOptions{Topic: filter, QoS: qos}
	for _, option := range options {
		option(&subscription)
	}
	ack, err := c.manager.Subscribe(soon(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{subscription}})
	check(err)
	expect(fmt.Sprint(ack.Reasons), fmt.Sprint([]byte{qos}))
}

// publish hands a message over: it is sent, and sent again, until it is acknowledged to the end.
func (c *client) publish(message *paho.Publish) {
	message.QoS = qos
	check(c.manager.PublishViaQueue(soon(), &autopaho.QueuePublish{Publish: message}))
}

func (c *client) say(topic, payload string) {
	c.publish(&paho.Publish{Topic: topic, Payload: []byte(payload)})
}

func (c *client) hear() *paho.Publish {
	return within(c.messages, "a message")
}

func (c *client) expect(topic, payload string, retain bool) *paho.Publish {
	message := c.hear()
	found := fmt.Sprint(message.Topic, " ", string(message.Payload), " ", message.Retain, " ", message.QoS)
	expect(found, fmt.Sprint(topic, " ", payload, " ", retain, " ", qos))
	return message
}

func soon() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(deadline, func() { cancel(context.DeadlineExceeded) })
	return ctx
}

func within[T any](channel chan T, what string) T {
	select {
	case value := <-channel:
		return value
	case <-time.After(deadline):
		log.Panicf("%s did not come", what)
		panic("unreachable")
	}
}

func expect[T comparable](found, expected T) {
	if found != expected {
		log.Panicf("found %v, expected %v", found, expected)
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
