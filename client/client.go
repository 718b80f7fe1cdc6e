package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// ErrImpostor says that whoever answered could not prove to be the supervisor
// of the record. Nothing was sent to it.
var ErrImpostor = errors.New("the process that answers cannot prove that it is the supervisor")

// Client is a connection to a supervisor. It may be used from many goroutines;
// requests take turns.
type Client struct {
	server lease.Server
	token  string // for TCP; empty on the unix socket

	mu   sync.Mutex // held over a request and its response
	conn net.Conn
	r    *bufio.Reader
	dead error
}

// dial connects and has the server prove itself: on the unix socket, or, where
// that cannot be reached, over TCP.
func dial(ctx context.Context, server lease.Server) (*Client, error) {
	c, err := connect(ctx, server, "unix", server.Socket, server.Socket)
	if err == nil {
		return c, nil
	}
	if errors.Is(err, ErrImpostor) {
		return nil, err
	}
	address := net.JoinHostPort(server.Host, strconv.Itoa(server.Port))
	c, terr := connect(ctx, server, "tcp", address, address)
	if terr != nil {
		return nil, fmt.Errorf("the supervisor (process %d) does not answer: %w", server.PID, terr)
	}
	c.token = server.Token
	return c, nil
}

func connect(ctx context.Context, server lease.Server, network, address, proven string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &Client{server: server, conn: conn, r: bufio.NewReader(conn)}
	if err := c.verify(ctx, proven); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// verify has the server prove that it knows the record's token. The proof is
// bound to the connection's address, so it cannot be fetched elsewhere.
func (c *Client) verify(ctx context.Context, address string) error {
	nonce := make([]byte, 32)
	rand.Read(nonce)
	b, status, err := c.roundTrip(ctx, http.MethodGet, "/v1/identity?nonce="+hex.EncodeToString(nonce), nil)
	if err != nil {
		return err
	}
	var answer struct {
		InstanceID string `json:"instance_id"`
		Proof      string `json:"proof"`
	}
	if status != http.StatusOK || json.Unmarshal(b, &answer) != nil {
		return fmt.Errorf("%w: it answered with status %d", ErrImpostor, status)
	}
	mac := hmac.New(sha256.New, []byte(c.server.Token))
	mac.Write([]byte("cast-id-1\n" + c.server.InstanceID + "\n" + hex.EncodeToString(nonce) + "\n" + address))
	want := hex.EncodeToString(mac.Sum(nil))
	if answer.InstanceID != c.server.InstanceID || !hmac.Equal([]byte(want), []byte(answer.Proof)) {
		return ErrImpostor
	}
	return nil
}

// Server is the record of the supervisor at the other end.
func (c *Client) Server() lease.Server { return c.server }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// roundTrip sends one HTTP request and reads its response, on this connection
// and no other: the proof holds for nothing else.
func (c *Client) roundTrip(ctx context.Context, method, path string, body []byte) ([]byte, int, error) {
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, 0, &notSent{err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return nil, 0, &notSent{c.dead}
	}
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(0, 1)) })
	defer stop()
	resp, err := c.exchange(req)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		c.dead = fmt.Errorf("the connection was lost: %w", err)
		c.conn.Close()
		return nil, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.dead = err
		c.conn.Close()
	}
	return b, resp.StatusCode, err
}

func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	host := net.JoinHostPort(c.server.Host, strconv.Itoa(c.server.Port))
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body == nil {
		req.Body, req.ContentLength = nil, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "castctl")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// exchange writes a request; what fails before a byte has left was not sent.
func (c *Client) exchange(req *http.Request) (*http.Response, error) {
	w := &countingWriter{w: c.conn}
	if err := req.Write(w); err != nil {
		if w.n == 0 {
			return nil, &notSent{err}
		}
		return nil, err
	}
	return http.ReadResponse(c.r, req)
}

type countingWriter struct {
	w io.Writer
	n int
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}

// notSent is a failure before anything left this process.
type notSent struct{ err error }

func (e *notSent) Error() string { return e.err.Error() }
func (e *notSent) Unwrap() error { return e.err }

// Call sends one request and decodes its result into result, which may be nil.
// A failure is a [*wire.Error], whose delivery says whether anything may have
// been changed.
func (c *Client) Call(ctx context.Context, id string, command wire.Command, result any) error {
	b, err := wire.Encode(wire.Request{ID: id, Command: command})
	if err != nil {
		return wire.Errorf(wire.InvalidRequest, "%v", err)
	}
	raw, failed := c.send(ctx, command.Op(), b)
	if failed != nil {
		return failed
	}
	r, err := wire.DecodeResponse(raw)
	switch {
	case err != nil:
		return method(wire.Unknownf(wire.Internal, "the response cannot be read: %v", err), command.Op())
	case r.Error != nil:
		return r.Error
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(r.Result, result); err != nil {
		return method(wire.Unknownf(wire.Internal, "the result cannot be read: %v", err), command.Op())
	}
	return nil
}

// Forward sends one request line as it is, and returns the response line.
func (c *Client) Forward(ctx context.Context, op string, request []byte) ([]byte, *wire.Error) {
	return c.send(ctx, op, request)
}

func (c *Client) send(ctx context.Context, op string, request []byte) ([]byte, *wire.Error) {
	b, status, err := c.roundTrip(ctx, http.MethodPost, "/v1/commands", request)
	if err == nil && (status == http.StatusOK || bytes.Contains(b, []byte(`"version"`))) {
		return b, nil
	}
	if err == nil {
		var body struct {
			Error *wire.Error `json:"error"`
		}
		if json.Unmarshal(b, &body) == nil && body.Error != nil {
			return nil, method(body.Error, op)
		}
		return nil, method(wire.Unknownf(wire.Internal, "the supervisor answered with status %d", status), op)
	}
	if _, ok := errors.AsType[*notSent](err); ok {
		return nil, method(wire.Errorf(wire.Unavailable, "the supervisor cannot be reached: %v", err), op)
	}
	return nil, method(wire.Unknownf(wire.Unavailable, "the connection to the supervisor was lost: %v", err), op)
}

func method(e *wire.Error, op string) *wire.Error {
	e.Details.Method = op
	return e
}

// Get reads a resource, such as /v1/instances.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	b, status, err := c.roundTrip(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, wire.Errorf(wire.Unavailable, "the supervisor cannot be reached: %v", err)
	}
	if status == http.StatusOK {
		return b, nil
	}
	var body struct {
		Error *wire.Error `json:"error"`
	}
	if json.Unmarshal(b, &body) == nil && body.Error != nil {
		return nil, body.Error
	}
	return nil, wire.Errorf(wire.Internal, "the supervisor answered with status %d", status)
}
