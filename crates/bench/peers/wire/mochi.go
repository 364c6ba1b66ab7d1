package main

import (
	"bytes"
	"runtime"

	"github.com/mochi-mqtt/server/v2/packets"
)

// mochi is the codec of the broker github.com/mochi-mqtt/server: MQTT 3.1.1 and 5.
type mochi struct{}

func (mochi) name() string { return "mochi" }

func (mochi) module() string { return "github.com/mochi-mqtt/server/v2" }

func (mochi) steps(wanted Case, values *Values) (steps, bool, error) {
	payload := bytes.Repeat([]byte{'x'}, wanted.PayloadBytes)
	build, ok := map[string]func() packets.Packet{
		"CONNECT":   func() packets.Packet { return mochiConnect(wanted, values) },
		"PUBLISH":   func() packets.Packet { return mochiPublish(wanted, values, payload) },
		"SUBSCRIBE": func() packets.Packet { return mochiSubscribe(wanted, values) },
		"AUTH":      func() packets.Packet { return mochiAuth(values) },
	}[wanted.Packet]
	if !ok {
		return steps{}, false, errUnknown(wanted.Packet)
	}
	made := build()
	// The body is read into memory of its own, as the broker does: what is decoded refers to it.
	read := func(from *bytes.Reader) {
		var packet packets.Packet
		packet.ProtocolVersion = wanted.Version
		first, err := from.ReadByte()
		must(err)
		must(packet.FixedHeader.Decode(first))
		packet.FixedHeader.Remaining, _, err = packets.DecodeLength(from)
		must(err)
		body := make([]byte, packet.FixedHeader.Remaining)
		_, err = from.Read(body)
		must(err)
		must(mochiDecode(&packet, body))
		runtime.KeepAlive(packet)
	}
	return steps{
		make:  func() { runtime.KeepAlive(build()) },
		write: func(to *bytes.Buffer) { must(mochiEncode(&made, to)) },
		read:  read,
		all: func(buffer *bytes.Buffer, reader *bytes.Reader) {
			packet := build()
			must(mochiEncode(&packet, buffer))
			reader.Reset(buffer.Bytes())
			read(reader)
		},
	}, true, nil
}

func mochiEncode(packet *packets.Packet, to *bytes.Buffer) error {
	switch packet.FixedHeader.Type {
	case packets.Connect:
		return packet.ConnectEncode(to)
	case packets.Publish:
		return packet.PublishEncode(to)
	case packets.Subscribe:
		return packet.SubscribeEncode(to)
	case packets.Auth:
		return packet.AuthEncode(to)
	default:
		return errUnknown(packets.PacketNames[packet.FixedHeader.Type])
	}
}

func mochiDecode(packet *packets.Packet, body []byte) error {
	switch packet.FixedHeader.Type {
	case packets.Connect:
		return packet.ConnectDecode(body)
	case packets.Publish:
		return packet.PublishDecode(body)
	case packets.Subscribe:
		return packet.SubscribeDecode(body)
	case packets.Auth:
		return packet.AuthDecode(body)
	default:
		return errUnknown(packets.PacketNames[packet.FixedHeader.Type])
	}
}

func mochiConnect(wanted Case, values *Values) packets.Packet {
	packet := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Connect},
		ProtocolVersion: wanted.Version,
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), Clean: true, Keepalive: values.KeepAliveSecs,
			ClientIdentifier: values.ClientID,
			UsernameFlag:     true, Username: []byte(values.UserName),
			PasswordFlag: true, Password: []byte(values.Password),
		},
	}
	if wanted.Properties {
		packet.Properties = packets.Properties{
			SessionExpiryInterval: values.SessionExpirySecs, SessionExpiryIntervalFlag: true,
			ReceiveMaximum: values.ReceiveMaximum, MaximumPacketSize: values.MaximumPacketBytes,
			TopicAliasMaximum: values.TopicAliasMaximum,
			User:              []packets.UserProperty{{Key: values.UserProperty[0], Val: values.UserProperty[1]}},
		}
	}
	return packet
}

func mochiPublish(wanted Case, values *Values, payload []byte) packets.Packet {
	packet := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Publish, Qos: wanted.Qos},
		ProtocolVersion: wanted.Version, TopicName: values.Topic, Payload: payload,
		// Without it, response topic and correlation data are left out.
		Mods: packets.Mods{AllowResponseInfo: true},
	}
	if wanted.Qos > 0 {
		packet.PacketID = values.PacketID
	}
	if wanted.Properties {
		packet.Properties = packets.Properties{
			PayloadFormat: 1, PayloadFormatFlag: true, MessageExpiryInterval: values.MessageExpirySecs,
			ContentType: values.ContentType, ResponseTopic: values.ResponseTopic,
			CorrelationData: []byte(values.CorrelationData),
			User:            []packets.UserProperty{{Key: values.UserProperty[0], Val: values.UserProperty[1]}},
		}
	}
	return packet
}

func mochiSubscribe(wanted Case, values *Values) packets.Packet {
	packet := packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Subscribe, Qos: 1},
		ProtocolVersion: wanted.Version, PacketID: values.PacketID,
		Filters: make(packets.Subscriptions, 0, len(values.Filters)),
	}
	for _, filter := range values.Filters {
		packet.Filters = append(packet.Filters, packets.Subscription{Filter: filter, Qos: 1})
	}
	if wanted.Properties {
		packet.Properties = packets.Properties{
			SubscriptionIdentifier: []int{values.SubscriptionID},
			User:                   []packets.UserProperty{{Key: values.UserProperty[0], Val: values.UserProperty[1]}},
		}
	}
	return packet
}

func mochiAuth(values *Values) packets.Packet {
	return packets.Packet{
		FixedHeader:     packets.FixedHeader{Type: packets.Auth},
		ProtocolVersion: 5, ReasonCode: packets.CodeContinueAuthentication.Code,
		Properties: packets.Properties{AuthenticationMethod: values.Method, AuthenticationData: []byte(values.Data)},
	}
}
