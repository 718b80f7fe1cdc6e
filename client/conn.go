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
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/lease"
)

// dial connects and has the server prove itself: on the unix socket, or, where
// that cannot be reached, over TCP.
func dial(ctx context.Context, server lease.Server, proof time.Duration) (*Client, error) {
	c, err := connect(ctx, server, proof, "unix", server.Socket)
	if err == nil {
		return c, nil
	}
	if errors.Is(err, ErrImpostor) {
		return nil, err
	}
	c, err = connect(ctx, server, proof, "tcp", net.JoinHostPort(server.Host, strconv.Itoa(server.Port)))
	if err != nil {
		return nil, fmt.Errorf("the supervisor (process %d) does not answer: %w", server.PID, err)
	}
	c.token = server.Token
	return c, nil
}

func connect(ctx context.Context, server lease.Server, proof time.Duration, network, address string) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, proof)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &Client{server: server, conn: conn, r: bufio.NewReader(conn), turn: make(chan struct{}, 1)}
	if err := c.verify(ctx, address); err != nil {
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

// acquire waits for the caller's turn on the connection, and makes sure that
// there still is one. Its errors are of requests that were not sent.
func (c *Client) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return &notSent{ctx.Err()}
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return &notSent{ctx.Err()}
	}
	if c.dead == nil && c.ended() {
		c.lose(errors.New("the supervisor has closed the connection"))
	}
	if c.dead != nil {
		c.release()
		return &notSent{c.dead}
	}
	return nil
}

func (c *Client) release() { <-c.turn }

// ended looks whether the other end has closed, or speaks unasked. Only a look
// before the first byte leaves tells for sure that a request was not sent.
func (c *Client) ended() bool {
	raw, err := c.conn.(syscall.Conn).SyscallConn()
	if err != nil || c.r.Buffered() > 0 {
		return true
	}
	var seen error
	err = raw.Read(func(fd uintptr) bool {
		_, _, seen = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return true
	})
	return err != nil || !errors.Is(seen, syscall.EAGAIN)
}

// lose gives the connection up. The caller has the turn.
func (c *Client) lose(why error) {
	c.dead = why
	c.conn.Close()
}

// roundTrip sends one HTTP request and reads its response, on this connection
// and no other: the proof holds for nothing else.
func (c *Client) roundTrip(ctx context.Context, method, path string, body []byte) ([]byte, int, error) {
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, 0, &notSent{err}
	}
	if err := c.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer c.release()
	stop := c.interruptedBy(ctx)
	b, status, err := c.exchangeWhole(req)
	switch {
	case err != nil:
		if ctx.Err() != nil {
			err = unlessNotSent(err, ctx.Err())
		}
		c.lose(fmt.Errorf("the connection was lost: %w", err))
	case !stop():
		c.lose(fmt.Errorf("the connection was given up: %w", ctx.Err()))
	}
	return b, status, err
}

// interruptedBy ends what is read and written when the context ends. What it
// returns reports whether that has not happened, and will not.
func (c *Client) interruptedBy(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(0, 1)) })
}

// unlessNotSent is why a request failed, by its context, if it may have been
// sent.
func unlessNotSent(err, why error) error {
	if _, ok := errors.AsType[*notSent](err); ok {
		return &notSent{why}
	}
	return why
}

func (c *Client) exchangeWhole(req *http.Request) ([]byte, int, error) {
	resp, err := c.exchange(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.Close {
		c.lose(errors.New("the supervisor has closed the connection"))
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
