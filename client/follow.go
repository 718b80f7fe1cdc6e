package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
)

// Frame is one frame of an event stream.
type Frame struct {
	ID   string // position to resume from; empty for frames without one
	Name string // event, snapshot, resync, state, removed, evicted
	Data []byte // JSON
}

// Stream is an open event stream. It takes the client's connection for itself.
// Next belongs to one goroutine; Close may be called from any.
type Stream struct {
	c    *Client
	body io.ReadCloser
	r    *bufio.Reader
	stop func() bool
	why  func() error // of the end, if the context is it
}

// errStreams refuses what would have to wait for ever.
var errStreams = errors.New("the connection carries a stream")

// Follow opens a stream: the overview, or the full events of the named
// instances, from the given position on. The client can do nothing else from
// then on. A failure is a [*wire.Error].
func (c *Client) Follow(ctx context.Context, after string, instances ...string) (*Stream, error) {
	q := url.Values{"instance": instances}
	if after != "" {
		q.Set("after", after)
	}
	req, err := c.request(ctx, http.MethodGet, "/v1/events?"+q.Encode(), nil)
	if err != nil {
		return nil, unreachable(err)
	}
	if err := c.acquire(ctx); err != nil {
		return nil, unreachable(err)
	}
	defer c.release()
	stop := c.interruptedBy(ctx)
	resp, err := c.exchange(req)
	if err == nil && resp.StatusCode == http.StatusOK {
		c.dead = errStreams
		return &Stream{c: c, body: resp.Body, r: bufio.NewReaderSize(resp.Body, 64<<10), stop: stop, why: ctx.Err}, nil
	}
	var b []byte
	if err == nil {
		defer resp.Body.Close()
		b, err = io.ReadAll(resp.Body)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.lose(err)
		return nil, unreachable(err)
	}
	return nil, refusal(b, resp.StatusCode)
}

// Next returns the next frame. At the end of the stream, of the context or of
// the connection it returns an error: [io.EOF], the context's, or another.
func (s *Stream) Next() (Frame, error) {
	var f Frame
	for {
		line, err := s.r.ReadBytes('\n')
		if err != nil {
			if s.why() != nil {
				err = s.why()
			}
			return Frame{}, err
		}
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) == 0 {
			if f.Name != "" {
				return f, nil
			}
			continue // after a heartbeat
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "id":
			f.ID = string(value)
		case "event":
			f.Name = string(value)
		case "data":
			f.Data = value
		}
	}
}

// Close ends the stream and its connection.
func (s *Stream) Close() error {
	s.stop()
	return s.c.Close()
}
