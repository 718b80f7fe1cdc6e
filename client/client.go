package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"

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

	turn chan struct{} // filled by whoever uses the fields below
	conn net.Conn
	r    *bufio.Reader
	dead error // why the connection is of no more use
}

// Server is the record of the supervisor at the other end.
func (c *Client) Server() lease.Server { return c.server }

// Close ends the connection, and whatever waits on it.
func (c *Client) Close() error {
	if err := c.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Call sends one request and decodes its result into result, which may be nil.
// A failure is a [*wire.Error], whose delivery says whether anything may have
// been changed.
func (c *Client) Call(ctx context.Context, id string, command wire.Command, result any) error {
	b, err := wire.Encode(wire.Request{ID: id, Command: command})
	if err != nil {
		bad, ok := errors.AsType[*wire.Error](err)
		if !ok {
			bad = wire.Errorf(wire.InvalidRequest, "%v", err)
		}
		return method(bad, command.Op())
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
		return method(r.Error, command.Op())
	case r.Result == nil, r.ID == nil, *r.ID != id:
		return method(wire.Unknownf(wire.Internal, "the response is not one to this request"), command.Op())
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
	if len(request) > wire.MaxBody {
		return nil, method(wire.Errorf(wire.RequestTooLarge, "the request is larger than %d bytes", wire.MaxBody), op)
	}
	b, status, err := c.roundTrip(ctx, http.MethodPost, "/v1/commands", request)
	if err == nil && (status == http.StatusOK || bytes.Contains(b, []byte(`"version"`))) {
		return b, nil
	}
	if err == nil {
		return nil, method(refusal(b, status), op)
	}
	if _, ok := errors.AsType[*notSent](err); ok {
		return nil, method(wire.Errorf(wire.Unavailable, "the supervisor cannot be reached: %v", err), op)
	}
	return nil, method(wire.Unknownf(wire.Unavailable, "the connection to the supervisor was lost: %v", err), op)
}

// method names the operation in an error that was made here or received. What
// was received without a word on its delivery may have been delivered.
func method(e *wire.Error, op string) *wire.Error {
	e.Details.Method = op
	if e.Delivery != wire.NotSent {
		e.Delivery = wire.DeliveryUnknown
	}
	return e
}

// refusal is the error in an answer that is not a response.
func refusal(b []byte, status int) *wire.Error {
	var body struct {
		Error *wire.Error `json:"error"`
	}
	if json.Unmarshal(b, &body) == nil && body.Error != nil {
		return body.Error
	}
	return wire.Unknownf(wire.Internal, "the supervisor answered with status %d", status)
}

// Get reads a resource, such as /v1/instances. A failure is a [*wire.Error].
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	b, status, err := c.roundTrip(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, unreachable(err)
	}
	if status != http.StatusOK {
		return nil, refusal(b, status)
	}
	return b, nil
}

// unreachable is the failure of what changes nothing, sent or not.
func unreachable(err error) *wire.Error {
	return wire.Errorf(wire.Unavailable, "the supervisor cannot be reached: %v", err)
}
