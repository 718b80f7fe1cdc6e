package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/wire"
)

// Config is where a server listens, and what it puts up with.
type Config struct {
	Address string // of the TCP listener; empty is 127.0.0.1 and any free port
	Log     *slog.Logger
	Limits  Limits
}

// Server is the open door of one supervisor.
type Server struct {
	sup    *supervisor.Supervisor
	cfg    Config
	tcp    *net.TCPListener
	unix   *net.UnixListener
	socket string
	token  string
	gate   gate
	doors  [2]*http.Server // TCP and unix
	slots  chan struct{}   // one for each open stream
	bound  Limits
}

// ErrNotLoopback refuses to listen where others could reach the door.
var ErrNotLoopback = errors.New("only loopback addresses can be listened on")

// Listen binds both listeners and serves. The supervisor is not published by
// it.
func Listen(sup *supervisor.Supervisor, cfg Config) (*Server, error) {
	s := &Server{sup: sup, cfg: cfg, token: newToken(), bound: cfg.Limits.orUsual()}
	s.slots = make(chan struct{}, s.bound.Streams)
	if err := s.bind(); err != nil {
		return nil, err
	}
	s.gate = newGate(s.tcp.Addr().(*net.TCPAddr))
	handler := s.handler()
	s.doors[0], s.doors[1] = s.door(handler, s.bound.Idle), s.door(handler, 0)
	go s.doors[0].Serve(newCrowd(s.tcp, s.bound.Conns))
	go s.doors[1].Serve(s.unix)
	return s, nil
}

// door is the HTTP of one listener. Whoever came in by the unix socket may be
// idle for as long as he likes: he is the user himself, and his next request
// must not be lost with the connection.
func (s *Server) door(h http.Handler, idle time.Duration) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.bound.Header,
		IdleTimeout:       idle,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       s.meet,
		ErrorLog:          slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		// What the library would answer by itself, nobody has let in.
		DisableGeneralOptionsHandler: true,
	}
}

func newToken() string {
	b := make([]byte, 32)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (s *Server) bind() error {
	address := s.cfg.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen address %s: %w", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%w, not %s", ErrNotLoopback, host)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.tcp = l.(*net.TCPListener)
	if s.unix, s.socket, err = s.sup.Home().ListenUnix("supervisor.sock"); err != nil {
		l.Close()
		return err
	}
	return nil
}

// Record is what the supervisor publishes of the door.
func (s *Server) Record() lease.Server {
	addr := s.tcp.Addr().(*net.TCPAddr)
	return lease.Server{Host: addr.IP.String(), Port: addr.Port, Socket: s.socket, Token: s.token}
}

// Check asks the door, as a client would, whether it answers.
func (s *Server) Check(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.tcp.Addr().String()+"/health", nil)
	if err != nil {
		return err
	}
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers itself with status %d", resp.StatusCode)
	}
	return nil
}

// Close stops accepting, gives running requests the time that the context
// leaves, and ends the rest.
func (s *Server) Close(ctx context.Context) error {
	var wg sync.WaitGroup
	var errs [len(s.doors)]error
	for i, d := range s.doors {
		wg.Go(func() {
			if d.Shutdown(ctx) != nil {
				errs[i] = d.Close()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// handler is every route. What is not here does not exist, and what needs no
// credential is named: a mistake in the rest cannot open a door.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/commands", s.commands)
	mux.HandleFunc("GET /v1/instances", s.instances)
	mux.HandleFunc("GET /v1/instances/{name}", s.instance)
	mux.HandleFunc("GET /v1/instances/{name}/history", s.history)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("/", absent)
	inside := s.authenticated(mux)
	return s.harden(s.gate.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /health", "HEAD /health":
			s.health(w, r)
		case "GET /v1/identity":
			s.identity(w, r)
		default:
			inside.ServeHTTP(w, r)
		}
	})))
}

func absent(w http.ResponseWriter, r *http.Request) {
	writeError(w, wire.Errorf(wire.NotFound, "there is no %s %s", r.Method, r.URL.Path))
}

// harden sets what every answer carries, a refusal too.
func (s *Server) harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The deadline of the answer before, on the same connection, is over.
		http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(answer{w, s.bound.Answer}, r)
	})
}

// answer is a response that must be taken in time: a client that does not read
// holds nothing for ever.
type answer struct {
	http.ResponseWriter
	bound time.Duration
}

func (a answer) WriteHeader(status int) {
	http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(a.bound))
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap lets a stream set its own deadlines.
func (a answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"ok":true}`))
}

// peerKey is the context key of a connection's [peer].
type peerKey struct{}

// peer is what the kernel says of a connection.
type peer struct {
	unix    bool
	user    bool   // unix: it is the supervisor's own user
	local   bool   // TCP: both ends are on loopback
	address string // the local end, to which the identity proof is bound
	known   func() // TCP: has the connection stay when the door is crowded
}

func (s *Server) meet(ctx context.Context, c net.Conn) context.Context {
	var p peer
	switch c := c.(type) {
	case *net.UnixConn:
		p = peer{unix: true, address: s.socket}
		if who, err := proc.PeerOf(c); err == nil {
			p.user = who.UID == ownUID
		}
	default:
		p.address = c.LocalAddr().String()
		p.local = isLoopback(c.LocalAddr()) && isLoopback(c.RemoteAddr())
		if g, ok := c.(*guest); ok {
			p.known = g.known
		}
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

func portOf(a *net.TCPAddr) string { return strconv.Itoa(a.Port) }
