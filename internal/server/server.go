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
	"time"

	"github.com/castctl/castctl/internal/proc"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/supervisor"
	"github.com/castctl/castctl/wire"
)

// Config is where a server listens.
type Config struct {
	Address string // of the TCP listener; empty is 127.0.0.1 and any free port
	Log     *slog.Logger
}

// Limits that keep one client's abuse from the others.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 60 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	maxStreams    = 1000
	maxTCPConns   = 2000
)

// Server is the open door of one supervisor.
type Server struct {
	sup    *supervisor.Supervisor
	cfg    Config
	tcp    *net.TCPListener
	unix   *net.UnixListener
	socket string
	token  string
	gate   gate
	http   *http.Server
	slots  chan struct{} // one for each open stream
}

// ErrNotLoopback refuses to listen where others could reach the door.
var ErrNotLoopback = errors.New("only loopback addresses can be listened on")

// Listen binds both listeners and serves. The supervisor is not published by
// it.
func Listen(sup *supervisor.Supervisor, cfg Config) (*Server, error) {
	s := &Server{sup: sup, cfg: cfg, token: newToken(), slots: make(chan struct{}, maxStreams)}
	if err := s.bind(); err != nil {
		return nil, err
	}
	s.gate = newGate(s.tcp.Addr().(*net.TCPAddr))
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       s.meet,
		ErrorLog:          slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	go s.http.Serve(limit(s.tcp, maxTCPConns))
	go s.http.Serve(s.unix)
	return s, nil
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
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close()
	}
	return nil
}

// handler is every route. What is not here does not exist.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /v1/identity", s.identity)
	mux.Handle("POST /v1/commands", s.authenticated(s.commands))
	mux.Handle("GET /v1/instances", s.authenticated(s.instances))
	mux.Handle("GET /v1/instances/{name}", s.authenticated(s.instance))
	mux.Handle("GET /v1/instances/{name}/history", s.authenticated(s.history))
	mux.Handle("GET /v1/events", s.authenticated(s.events))
	mux.Handle("/", s.authenticated(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, wire.Errorf(wire.NotFound, "there is no %s %s", r.Method, r.URL.Path))
	}))
	return s.gate.guard(harden(mux))
}

// harden sets the headers that every answer carries.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

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
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

func portOf(a *net.TCPAddr) string { return strconv.Itoa(a.Port) }
