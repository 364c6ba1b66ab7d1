module github.com/pondhawk/pondhawk/crates/bench/peers/wire

go 1.25

require (
	github.com/eclipse/paho.golang v0.23.0
	github.com/mochi-mqtt/server/v2 v2.7.9
)
