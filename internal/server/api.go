package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// statusOf maps an error to HTTP.
var statusOf = map[wire.Code]int{
	wire.InvalidRequest:     http.StatusBadRequest,
	wire.UnsupportedVersion: http.StatusBadRequest,
	wire.Unauthorized:       http.StatusUnauthorized,
	wire.NotFound:           http.StatusNotFound,
	wire.Conflict:           http.StatusConflict,
	wire.InvalidState:       http.StatusConflict,
	wire.RequestTooLarge:    http.StatusRequestEntityTooLarge,
	wire.Internal:           http.StatusInternalServerError,
	wire.UnsupportedMethod:  http.StatusNotImplemented,
	wire.Unavailable:        http.StatusServiceUnavailable,
}

// commands is the one route that changes anything.
func (s *Server) commands(w http.ResponseWriter, r *http.Request) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		writeStatus(w, http.StatusUnsupportedMediaType, wire.Errorf(wire.InvalidRequest, "the content type must be application/json"))
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			writeResponse(w, wire.Fail("", wire.Errorf(wire.RequestTooLarge, "the request is larger than %d bytes", wire.MaxBody)))
		}
		return
	}
	req, bad := wire.Control.Decode(body)
	if bad != nil {
		writeResponse(w, wire.Fail(req.ID, bad))
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	result, failed := s.sup.Call(r.Context(), req)
	if failed != nil {
		writeResponse(w, wire.Fail(req.ID, failed))
		return
	}
	writeResponse(w, wire.Succeed(req.ID, result))
}

func (s *Server) instances(w http.ResponseWriter, r *http.Request) {
	if !known(w, r) {
		return
	}
	writeJSON(w, http.StatusOK, s.sup.Snapshot().JSON())
}

func (s *Server) instance(w http.ResponseWriter, r *http.Request) {
	if known(w, r) {
		s.answer(w, r, wire.Get{Instance: r.PathValue("name")})
	}
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	if !known(w, r, "after", "limit") {
		return
	}
	c := wire.History{Instance: r.PathValue("name"), After: r.URL.Query().Get("after")}
	if limit := r.URL.Query().Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > 1000 {
			writeError(w, wire.Errorf(wire.InvalidRequest, "limit must be a number from 1 to 1000"))
			return
		}
		c.Limit = n
	}
	s.answer(w, r, c)
}

// answer carries out a read and returns its result bare.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, c wire.Command) {
	result, err := s.sup.Call(r.Context(), wire.Request{Command: c})
	if err != nil {
		writeError(w, err)
		return
	}
	writeResult(w, result)
}

// known refuses query parameters that mean nothing here: a token in an address,
// for instance, that would end in logs.
func known(w http.ResponseWriter, r *http.Request, names ...string) bool {
	for name := range r.URL.Query() {
		ok := false
		for _, n := range names {
			ok = ok || n == name
		}
		if !ok {
			writeError(w, wire.Errorf(wire.InvalidRequest, "the parameter %q is not known here", name))
			return false
		}
	}
	return true
}

func writeResponse(w http.ResponseWriter, r wire.Response) {
	status := http.StatusOK
	if r.Error != nil {
		status = statusOf[r.Error.Code]
	}
	writeJSON(w, status, r.Encode())
}

func writeResult(w http.ResponseWriter, result any) {
	if b, ok := result.(jsontext.Value); ok {
		writeJSON(w, http.StatusOK, b)
		return
	}
	b, err := json.Marshal(result)
	if err != nil {
		writeError(w, wire.Unknownf(wire.Internal, "the result cannot be encoded: %v", err))
		return
	}
	writeJSON(w, http.StatusOK, b)
}

func writeError(w http.ResponseWriter, err *wire.Error) { writeStatus(w, statusOf[err.Code], err) }

func writeStatus(w http.ResponseWriter, status int, err *wire.Error) {
	b, _ := json.Marshal(struct {
		Error *wire.Error `json:"error"`
	}{err})
	writeJSON(w, status, b)
}

func writeJSON(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	w.Write(b)
}
