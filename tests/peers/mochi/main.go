// The MQTT broker library mochi as a program, for comparisons.
//
// usage: mochi [-store FOLDER] [-cert FILE -key FILE] [-websocket] PORT
//
// With -store, sessions and their messages are written to a Pebble database in that folder, and each write is synced.
package main

import (
	"crypto/tls"
	"flag"
	"io"
	"log"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/hooks/storage/pebble"
	"github.com/mochi-mqtt/server/v2/listeners"
)

// writesPending is the number of packets that may wait for one connection. Each connection reserves eight bytes for each
// of them, and packets beyond this number are dropped. The library's default is 8192.
const writesPending = 1 << 16

func main() {
	store := flag.String("store", "", "folder of the database; without it, nothing is stored")
	certificate := flag.String("cert", "", "certificate, a PEM file; with it, connections have TLS")
	key := flag.String("key", "", "private key of the certificate, a PEM file")
	websocket := flag.Bool("websocket", false, "serve MQTT over WebSocket")
	version := flag.Bool("version", false, "print the version of the library")
	flag.Parse()
	if *version {
		printVersion()
		return
	}
	if flag.NArg() != 1 {
		log.Fatal("usage: mochi [-store FOLDER] [-cert FILE -key FILE] [-websocket] PORT")
	}
	server := mqtt.New(options())
	check(server.AddHook(new(auth.AllowHook), nil))
	if *store != "" {
		check(server.AddHook(new(pebble.Hook), &pebble.Options{Path: *store, Mode: pebble.Sync}))
	}
	config := listeners.Config{ID: "clients", Address: "127.0.0.1:" + flag.Arg(0)}
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *key)
		check(err)
		config.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	if *websocket {
		check(server.AddListener(listeners.NewWebsocket(config)))
	} else {
		check(server.AddListener(listeners.NewTCP(config)))
	}
	check(server.Serve())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	check(server.Close())
}

// options raises the limits above which messages are dropped, and turns logging off.
func options() *mqtt.Options {
	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumClientWritesPending = writesPending
	capabilities.MaximumInflight = math.MaxUint16
	capabilities.ReceiveMaximum = math.MaxUint16
	return &mqtt.Options{
		Capabilities: capabilities,
		Logger:       slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	}
}

func printVersion() {
	os.Stdout.WriteString("mochi-mqtt " + mqtt.Version)
	if build, ok := debug.ReadBuildInfo(); ok {
		os.Stdout.WriteString(", " + build.GoVersion)
	}
	os.Stdout.WriteString("\n")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
