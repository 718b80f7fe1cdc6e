package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
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
	if !isJSON(r) {
		writeStatus(w, http.StatusUnsupportedMediaType, wire.Errorf(wire.InvalidRequest, "the content must be application/json, and not compressed"))
		return
	}
	body, bad := s.body(w, r)
	if bad != nil {
		writeResponse(w, wire.Fail("", bad))
		return
	}
	if !known(w, r) {
		return
	}
	req, bad := wire.Control.Decode(body)
	if bad != nil {
		writeResponse(w, wire.Fail(req.ID, bad))
		return
	}
	result, failed := s.sup.Call(r.Context(), req)
	if failed != nil {
		writeResponse(w, wire.Fail(req.ID, failed))
		return
	}
	writeResponse(w, wire.Succeed(req.ID, result))
}

// isJSON tells whether a body is what it must be. A form of a foreign page can
// be many things, but not this.
func isJSON(r *http.Request) bool {
	types := r.Header.Values("Content-Type")
	if len(types) != 1 || len(r.Header.Values("Content-Encoding")) > 0 {
		return false
	}
	media, _, err := mime.ParseMediaType(types[0])
	return err == nil && media == "application/json"
}

// body reads a request's body, as much as there may be in the time that it may
// take.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, *wire.Error) {
	if r.ContentLength > wire.MaxBody {
		return nil, tooLarge(w)
	}
	ctl := http.NewResponseController(w)
	ctl.SetReadDeadline(time.Now().Add(s.bound.Body))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return nil, tooLarge(w)
	}
	if err != nil {
		w.Header().Set("Connection", "close") // where the next request begins is not known
		return nil, wire.Errorf(wire.InvalidRequest, "the request did not arrive whole: %v", err)
	}
	ctl.SetReadDeadline(time.Time{})
	return body, nil
}

func tooLarge(w http.ResponseWriter) *wire.Error {
	w.Header().Set("Connection", "close") // the rest of it is not read
	return wire.Errorf(wire.RequestTooLarge, "the request is larger than %d bytes", wire.MaxBody)
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
	if err := checkName(r.PathValue("name")); err != nil {
		writeError(w, err)
		return
	}
	result, err := s.sup.Call(r.Context(), wire.Request{Command: c})
	if err != nil {
		writeError(w, err)
		return
	}
	writeResult(w, result)
}

// checkName refuses what no instance can be called. An id is a name, too.
func checkName(name string) *wire.Error {
	if !wire.ValidName(name) {
		return wire.Errorf(wire.InvalidRequest, "the name %q %s", name, wire.NameRule)
	}
	return nil
}

// known refuses query parameters that mean nothing here: a token in an address,
// for instance, that would end in logs. Only an instance may be named more than
// once.
func known(w http.ResponseWriter, r *http.Request, names ...string) bool {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		writeError(w, wire.Errorf(wire.InvalidRequest, "the parameters cannot be read"))
		return false
	}
	for name, values := range query {
		if !slices.Contains(names, name) {
			writeError(w, wire.Errorf(wire.InvalidRequest, "the parameter %q is not known here", name))
			return false
		}
		if len(values) > 1 && name != "instance" {
			writeError(w, wire.Errorf(wire.InvalidRequest, "the parameter %q is given twice", name))
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
