package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/castctl/castctl/wire"
)

var ownUID = os.Geteuid()

// gate knows under which names this door may be addressed over TCP, and from
// which pages. Only the exact names pass: whatever resolves here under another
// name was made to do so.
type gate struct{ hosts, origins []string }

func newGate(a *net.TCPAddr) gate {
	var g gate
	for _, name := range []string{a.IP.String(), "127.0.0.1", "localhost", "::1"} {
		host := net.JoinHostPort(name, portOf(a))
		g.hosts = append(g.hosts, host)
		g.origins = append(g.origins, "http://"+host)
	}
	return g
}

// guard refuses requests that a foreign page or a rebound name sent here.
func (g gate) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		switch {
		case !p.unix && (!slices.Contains(g.hosts, r.Host) || r.URL.Host != ""):
			forbid(w, "this server is not addressed by that name")
		case !g.originFits(r):
			forbid(w, "requests from other pages are refused")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (g gate) originFits(r *http.Request) bool {
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && !slices.Contains(g.origins, origins[0]) {
		return false
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	return true
}

func forbid(w http.ResponseWriter, why string) {
	writeStatus(w, http.StatusForbidden, wire.Errorf(wire.Unauthorized, "%s", why))
}

// authenticated lets through whoever has a credential. All others get the same
// answer, whatever they asked for.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		if !(p.unix && p.user || p.local && s.bears(r)) {
			writeError(w, wire.Errorf(wire.Unauthorized, "a credential is needed"))
			return
		}
		if p.known != nil {
			p.known()
		}
		next.ServeHTTP(w, r)
	})
}

// bears reports whether a request carries the local token, in constant time.
func (s *Server) bears(r *http.Request) bool {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return false
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

// Proof is what a server answers to a nonce: it knows the token, and this is
// the address at which it was asked.
func Proof(token, instanceID, nonce, address string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("cast-id-1\n" + instanceID + "\n" + nonce + "\n" + address))
	return hex.EncodeToString(mac.Sum(nil))
}

const nonceSize = 32 // bytes, given in hex

func (s *Server) identity(w http.ResponseWriter, r *http.Request) {
	p, _ := r.Context().Value(peerKey{}).(peer)
	if !p.local && !(p.unix && p.user) {
		writeError(w, wire.Errorf(wire.Unauthorized, "a credential is needed"))
		return
	}
	q := r.URL.Query()
	nonce := q.Get("nonce")
	if b, err := hex.DecodeString(nonce); err != nil || len(b) != nonceSize || len(q) != 1 {
		writeError(w, wire.Errorf(wire.InvalidRequest, "the nonce must be %d bytes in hex", nonceSize))
		return
	}
	writeResult(w, struct {
		InstanceID string `json:"instance_id"`
		Proof      string `json:"proof"`
	}{s.sup.ID(), Proof(s.token, s.sup.ID(), nonce, p.address)})
}
