// Command wire measures MQTT codecs written in Go on the cases that arrive on standard input, and prints the results as
// JSON. The benchmark of pondhawk-wire starts it and puts its figures beside its own.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// Input is what the benchmark asks for: the same values and cases that it measures itself.
type Input struct {
	Values   Values        `json:"values"`
	Cases    []Case        `json:"cases"`
	BudgetNs time.Duration `json:"budget_ns"`
}

// Values are what the fields of all packets are filled with.
type Values struct {
	ClientID           string    `json:"client_id"`
	UserName           string    `json:"user_name"`
	Password           string    `json:"password"`
	Topic              string    `json:"topic"`
	Filters            [3]string `json:"filters"`
	ContentType        string    `json:"content_type"`
	ResponseTopic      string    `json:"response_topic"`
	CorrelationData    string    `json:"correlation_data"`
	UserProperty       [2]string `json:"user_property"`
	Method             string    `json:"authentication_method"`
	Data               string    `json:"authentication_data"`
	KeepAliveSecs      uint16    `json:"keep_alive_secs"`
	SessionExpirySecs  uint32    `json:"session_expiry_secs"`
	ReceiveMaximum     uint16    `json:"receive_maximum"`
	MaximumPacketBytes uint32    `json:"maximum_packet_bytes"`
	TopicAliasMaximum  uint16    `json:"topic_alias_maximum"`
	MessageExpirySecs  uint32    `json:"message_expiry_secs"`
	PacketID           uint16    `json:"packet_id"`
	SubscriptionID     int       `json:"subscription_id"`
}

// Case is one packet to be created, written and read.
type Case struct {
	Name         string `json:"name"`
	Packet       string `json:"packet"`
	Version      byte   `json:"version"`
	Qos          byte   `json:"qos"`
	PayloadBytes int    `json:"payload_bytes"`
	Properties   bool   `json:"properties"`
}

// Output is one codec's figures for one case.
type Output struct {
	Codec string           `json:"codec"`
	Case  string           `json:"case"`
	Wire  string           `json:"wire"` // in hexadecimal digits
	Steps map[string]Costs `json:"steps"`
}

func main() {
	var input Input
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		fail(err)
	}
	var outputs []Output
	for _, wanted := range input.Cases {
		for _, codec := range []codec{paho{}, mochi{}} {
			steps, ok, err := codec.steps(wanted, &input.Values)
			if err != nil {
				fail(err)
			}
			if ok {
				outputs = append(outputs, measured(withVersion(codec), wanted.Name, steps, input.BudgetNs))
			}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(outputs); err != nil {
		fail(err)
	}
}

// withVersion returns the name of a codec with the version that this program is built with.
func withVersion(codec codec) string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == codec.module() {
			return codec.name() + " " + strings.TrimPrefix(module.Version, "v")
		}
	}
	return codec.name()
}

// errUnknown says that no codec can be asked for a packet.
func errUnknown(packet string) error {
	return fmt.Errorf("there is no packet %q", packet)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
