module github.com/pondhawk/pondhawk/crates/bench/peers/pipeline

go 1.24.0

require github.com/eclipse/paho.golang v0.23.0
