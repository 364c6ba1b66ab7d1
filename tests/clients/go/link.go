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
)

// dial connects over TCP, unless the environment names another way: `tls` or `wss`, and the certificate of the authority.
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
	default:
		return nil, errors.New("no such way: " + link)
	}
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
