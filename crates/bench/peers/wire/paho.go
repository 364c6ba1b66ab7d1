package main

import (
	"bytes"
	"runtime"

	"github.com/eclipse/paho.golang/packets"
)

// paho is github.com/eclipse/paho.golang: MQTT 5 only.
type paho struct{}

func (paho) name() string { return "paho.golang" }

func (paho) module() string { return "github.com/eclipse/paho.golang" }

func (paho) steps(wanted Case, values *Values) (steps, bool, error) {
	if wanted.Version != 5 {
		return steps{}, false, nil
	}
	payload := bytes.Repeat([]byte{'x'}, wanted.PayloadBytes)
	build, ok := map[string]func() *packets.ControlPacket{
		"CONNECT":   func() *packets.ControlPacket { return pahoConnect(wanted, values) },
		"PUBLISH":   func() *packets.ControlPacket { return pahoPublish(wanted, values, payload) },
		"SUBSCRIBE": func() *packets.ControlPacket { return pahoSubscribe(wanted, values) },
		"AUTH":      func() *packets.ControlPacket { return pahoAuth(values) },
	}[wanted.Packet]
	if !ok {
		return steps{}, false, errUnknown(wanted.Packet)
	}
	made := build()
	read := func(from *bytes.Reader) {
		packet, err := packets.ReadPacket(from)
		must(err)
		runtime.KeepAlive(packet)
	}
	write := func(packet *packets.ControlPacket, to *bytes.Buffer) {
		_, err := packet.WriteTo(to)
		must(err)
	}
	return steps{
		make:  func() { runtime.KeepAlive(build()) },
		write: func(to *bytes.Buffer) { write(made, to) },
		read:  read,
		all: func(buffer *bytes.Buffer, reader *bytes.Reader) {
			write(build(), buffer)
			reader.Reset(buffer.Bytes())
			read(reader)
		},
	}, true, nil
}

func pahoConnect(wanted Case, values *Values) *packets.ControlPacket {
	properties := &packets.Properties{}
	if wanted.Properties {
		properties.SessionExpiryInterval = &values.SessionExpirySecs
		properties.ReceiveMaximum = &values.ReceiveMaximum
		properties.MaximumPacketSize = &values.MaximumPacketBytes
		properties.TopicAliasMaximum = &values.TopicAliasMaximum
		properties.User = []packets.User{{Key: values.UserProperty[0], Value: values.UserProperty[1]}}
	}
	return &packets.ControlPacket{
		FixedHeader: packets.FixedHeader{Type: packets.CONNECT},
		Content: &packets.Connect{
			ProtocolName: "MQTT", ProtocolVersion: 5, CleanStart: true, KeepAlive: values.KeepAliveSecs,
			ClientID:     values.ClientID,
			UsernameFlag: true, Username: values.UserName,
			PasswordFlag: true, Password: []byte(values.Password),
			Properties: properties,
		},
	}
}

func pahoPublish(wanted Case, values *Values, payload []byte) *packets.ControlPacket {
	properties := &packets.Properties{}
	if wanted.Properties {
		text := byte(1)
		properties.PayloadFormat = &text
		properties.MessageExpiry = &values.MessageExpirySecs
		properties.ContentType = values.ContentType
		properties.ResponseTopic = values.ResponseTopic
		properties.CorrelationData = []byte(values.CorrelationData)
		properties.User = []packets.User{{Key: values.UserProperty[0], Value: values.UserProperty[1]}}
	}
	publish := &packets.Publish{Topic: values.Topic, QoS: wanted.Qos, Properties: properties, Payload: payload}
	if wanted.Qos > 0 {
		publish.PacketID = values.PacketID
	}
	return publish.ToControlPacket()
}

func pahoSubscribe(wanted Case, values *Values) *packets.ControlPacket {
	properties := &packets.Properties{}
	if wanted.Properties {
		properties.SubscriptionIdentifier = &values.SubscriptionID
		properties.User = []packets.User{{Key: values.UserProperty[0], Value: values.UserProperty[1]}}
	}
	subscriptions := make([]packets.SubOptions, 0, len(values.Filters))
	for _, filter := range values.Filters {
		subscriptions = append(subscriptions, packets.SubOptions{Topic: filter, QoS: 1})
	}
	return &packets.ControlPacket{
		FixedHeader: packets.FixedHeader{Type: packets.SUBSCRIBE, Flags: 2},
		Content: &packets.Subscribe{
			Properties: properties, Subscriptions: subscriptions, PacketID: values.PacketID,
		},
	}
}

func pahoAuth(values *Values) *packets.ControlPacket {
	return &packets.ControlPacket{
		FixedHeader: packets.FixedHeader{Type: packets.AUTH},
		Content: &packets.Auth{
			ReasonCode: packets.AuthContinueAuthentication,
			Properties: &packets.Properties{AuthMethod: values.Method, AuthData: []byte(values.Data)},
		},
	}
}
