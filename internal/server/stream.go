package server

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	heartbeat = 15 * time.Second
	// stall is how long a client may make no progress before it is dropped.
	stall = 10 * time.Second
	// burst is how many bytes of events are written before they are flushed.
	burst = 256 << 10
)

// stream is one client's event stream (SSE).
type stream struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
	buf []byte
}

func newStream(w http.ResponseWriter) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &stream{w: w, ctl: http.NewResponseController(w)}
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
	s.ctl.SetWriteDeadline(time.Now().Add(stall))
	_, err := s.w.Write(s.buf)
	if cap(s.buf) > burst*2 {
		s.buf = nil
	}
	s.buf = s.buf[:0]
	if err != nil {
		return err
	}
	return s.ctl.Flush()
}

func (s *stream) beat() error {
	s.buf = append(s.buf, ": hb\n\n"...)
	return s.flush()
}

// evict tells the client, if it still can, why the stream ends and where to go
// on.
func (s *stream) evict(reason, resume string) {
	s.object("", "evicted", map[string]string{"reason": reason, "resume": resume})
	s.flush()
}
