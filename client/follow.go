package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/castctl/castctl/wire"
)

// Frame is one frame of an event stream.
type Frame struct {
	ID   string // position to resume from; empty for frames without one
	Name string // event, snapshot, resync, state, removed, evicted
	Data []byte // JSON
}

// Stream is an open event stream. It takes the client's connection for itself.
type Stream struct {
	c    *Client
	body io.ReadCloser
	r    *bufio.Reader
	stop func() bool
}

// Follow opens a stream: the overview, or the full events of the named
// instances, from the given position on. The client can do nothing else from
// then on.
func (c *Client) Follow(ctx context.Context, after string, instances ...string) (*Stream, error) {
	q := url.Values{"instance": instances}
	if after != "" {
		q.Set("after", after)
	}
	req, err := c.request(ctx, http.MethodGet, "/v1/events?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	c.mu.Lock() // for good
	stop := context.AfterFunc(ctx, func() { c.conn.SetDeadline(time.Unix(0, 1)) })
	resp, err := c.exchange(req)
	if err != nil {
		return nil, wire.Errorf(wire.Unavailable, "the supervisor cannot be reached: %v", err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		var body struct {
			Error *wire.Error `json:"error"`
		}
		if json.Unmarshal(b, &body) == nil && body.Error != nil {
			return nil, body.Error
		}
		return nil, fmt.Errorf("the supervisor answered with status %d", resp.StatusCode)
	}
	return &Stream{c: c, body: resp.Body, r: bufio.NewReaderSize(resp.Body, 64<<10), stop: stop}, nil
}

// Next returns the next frame. At the end of the stream, of the context or of
// the connection it returns an error.
func (s *Stream) Next() (Frame, error) {
	var f Frame
	for {
		line, err := s.r.ReadBytes('\n')
		if err != nil {
			return f, err
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
	return s.c.conn.Close()
}
