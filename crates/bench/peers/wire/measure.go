package main

import (
	"bytes"
	"encoding/hex"
	"runtime"
	"slices"
	"time"
)

// Packets that are handled between two looks at the clock, as in the benchmark that asks.
const batch = 256

// Packets are written one behind the other, until there are as many bytes.
const bufferBytes = 8192

// codec is one library under test.
type codec interface {
	name() string
	// module is the path of the Go module.
	module() string
	// steps returns false for packets that the library does not know, and an error for packets that nobody knows.
	steps(Case, *Values) (steps, bool, error)
}

// steps handle one packet each.
type steps struct {
	make  func()
	write func(*bytes.Buffer)
	// read takes one packet from the reader.
	read func(*bytes.Reader)
	all  func(*bytes.Buffer, *bytes.Reader)
}

// Costs of one packet.
type Costs struct {
	Ns          float64 `json:"ns"`
	Allocations float64 `json:"allocations"`
}

func measured(codec, name string, steps steps, budget time.Duration) Output {
	var buffer bytes.Buffer
	steps.write(&buffer)
	wire := bytes.Clone(buffer.Bytes())
	stream := bytes.Repeat(wire, batch)
	reader := bytes.NewReader(stream)
	return Output{codec, name, hex.EncodeToString(wire), map[string]Costs{
		"create": costs(budget, func() {}, steps.make),
		"write": costs(budget, func() {}, func() {
			if buffer.Len() >= bufferBytes {
				buffer.Reset()
			}
			steps.write(&buffer)
		}),
		"read":      costs(budget, func() { reader.Reset(stream) }, func() { steps.read(reader) }),
		"all three": costs(budget, func() {}, func() { buffer.Reset(); steps.all(&buffer, reader) }),
	}}
}

// costs runs a step in batches until the budget is spent. The median of the batches leaves out those that the garbage
// collector or the scheduler interrupted.
func costs(budget time.Duration, prepare, step func()) Costs {
	run := func() time.Duration {
		prepare()
		begin := time.Now()
		for range batch {
			step()
		}
		return time.Since(begin)
	}
	run()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	var took []time.Duration
	for end := time.Now().Add(budget); len(took) == 0 || time.Now().Before(end); {
		took = append(took, run())
	}
	slices.Sort(took)
	return Costs{
		Ns:          float64(took[len(took)/2].Nanoseconds()) / batch,
		Allocations: float64((after.Mallocs - before.Mallocs) / batch),
	}
}

func must(err error) {
	if err != nil {
		fail(err)
	}
}
