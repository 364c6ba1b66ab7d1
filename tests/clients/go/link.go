package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/gorilla/websocket"
	"github.com/quic-go/quic-go"
)

// dial connects over TCP, unless the environment names another way: `tls`, `wss` or `quic`, and the certificate of the authority.
func dial(ctx context.Context, address string) (net.Conn, error) {
	switch link := os.Getenv("PONDHAWK_LINK"); link {
	case "":
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	case "tls":
		return (&tls.Dialer{Config: trust()}).DialContext(ctx, "tcp", address)
	case "wss":
		dialer := websocket.Dialer{TLSClientConfig: trust(), Subprotocols: []string{"mqtt"}}
		connection, _, err := dialer.DialContext(ctx, "wss://"+address+"/mqtt", nil)
		if err != nil {
			return nil, err
		}
		return &framed{Conn: connection}, nil
	case "quic":
		return dialQUIC(ctx, address)
	default:
		return nil, errors.New("no such way: " + link)
	}
}

// dialQUIC opens the stream of MQTT in a connection of its own.
func dialQUIC(ctx context.Context, address string) (net.Conn, error) {
	config := trust()
	config.NextProtos = []string{"mqtt"}
	connection, err := quic.DialAddr(ctx, address, config, &quic.Config{KeepAlivePeriod: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return &streamed{Stream: stream, connection: connection}, nil
}

// streamed is the stream of a QUIC connection, which ends with it.
type streamed struct {
	*quic.Stream
	connection *quic.Conn
}

func (s *streamed) LocalAddr() net.Addr  { return s.connection.LocalAddr() }
func (s *streamed) RemoteAddr() net.Addr { return s.connection.RemoteAddr() }

// Close waits until the broker has closed its direction, because the end of a connection takes unread bytes with it.
func (s *streamed) Close() error {
	if err := s.Stream.Close(); err != nil {
		return err
	}
	go func() {
		select {
		case <-s.connection.Context().Done():
		case <-time.After(time.Second):
		}
		_ = s.connection.CloseWithError(0, "")
	}()
	return nil
}

// trust accepts certificates of the authority only.
func trust() *tls.Config {
	text, err := os.ReadFile(os.Getenv("PONDHAWK_CA"))
	check(err)
	authorities := x509.NewCertPool()
	expect(authorities.AppendCertsFromPEM(text), true)
	return &tls.Config{RootCAs: authorities}
}

// framed is a WebSocket as a stream of bytes.
type framed struct {
	*websocket.Conn
	message io.Reader
}

func (f *framed) Read(into []byte) (int, error) {
	for {
		if f.message == nil {
			_, message, err := f.NextReader()
			if err != nil {
				return 0, err
			}
			f.message = message
		}
		count, err := f.message.Read(into)
		if errors.Is(err, io.EOF) {
			f.message, err = nil, nil
		}
		if count > 0 || err != nil {
			return count, err
		}
	}
}

func (f *framed) Write(bytes []byte) (int, error) {
	return len(bytes), f.WriteMessage(websocket.BinaryMessage, bytes)
}

func (f *framed) SetDeadline(at time.Time) error {
	return errors.Join(f.SetReadDeadline(at), f.SetWriteDeadline(at))
}
