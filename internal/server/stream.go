package server

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// burst is how many bytes of events are written before they are flushed.
	burst = 256 << 10
	// piece is how much of it a client must take in one go. A large event is
	// many: whoever takes it slowly makes progress all the same.
	piece = 32 << 10
)

// stream is one client's event stream (SSE).
type stream struct {
	w     http.ResponseWriter
	ctl   *http.ResponseController
	stall time.Duration // how long the client may take nothing
	buf   []byte
}

func newStream(w http.ResponseWriter, stall time.Duration) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, ctl: http.NewResponseController(w), stall: stall}
	s.ctl.Flush() // the client knows that it is connected, although there is no event yet
	return s
}

// event adds an event to what will be written.
func (s *stream) event(id, name string, data []byte) {
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
	s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
}

func (s *stream) object(id, name string, v any) {
	if b, err := json.Marshal(v); err == nil {
		s.event(id, name, b)
	}
}

func (s *stream) full() bool { return len(s.buf) >= burst }

// flush writes what was added. A client that takes nothing for too long ends
// the stream.
func (s *stream) flush() error {
	if len(s.buf) == 0 {
		return nil
	}
	for b := s.buf; len(b) > 0; {
		n := min(len(b), piece)
		s.ctl.SetWriteDeadline(time.Now().Add(s.stall))
		if _, err := s.w.Write(b[:n]); err != nil {
			s.buf = nil
			return err
		}
		b = b[n:]
	}
	if cap(s.buf) > burst*2 {
		s.buf = nil
	}
	s.buf = s.buf[:0]
	return s.ctl.Flush()
}

// beat adds a sign of life.
func (s *stream) beat() { s.buf = append(s.buf, ": hb\n\n"...) }

// evict tells the client, if it still can, why the stream ends and where to go
// on.
func (s *stream) evict(reason, resume string) {
	s.object("", "evicted", struct {
		Reason string `json:"reason"`
		Resume string `json:"resume"`
	}{reason, resume})
	s.flush()
}
