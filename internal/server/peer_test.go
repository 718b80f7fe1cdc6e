package server_test

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// elsewhere is a connection that seems to come from, or to, another address.
type elsewhere struct {
	net.Conn
	local, remote net.Addr
}

func (c elsewhere) LocalAddr() net.Addr  { return c.local }
func (c elsewhere) RemoteAddr() net.Addr { return c.remote }

type elsewhereListener struct {
	net.Listener
	local, remote string // empty is the real one
}

func (l elsewhereListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	e := elsewhere{c, c.LocalAddr(), c.RemoteAddr()}
	if l.local != "" {
		e.local = &net.TCPAddr{IP: net.ParseIP(l.local), Port: 1}
	}
	if l.remote != "" {
		e.remote = &net.TCPAddr{IP: net.ParseIP(l.remote), Port: 1}
	}
	return e, nil
}

// The token is good from this machine only, whatever a header says.
func TestAttackFromAfar(t *testing.T) {
	f := victim(t, usual)
	const nonce = "/v1/identity?nonce=0000000000000000000000000000000000000000000000000000000000000000"
	for _, c := range []struct {
		name, local, remote string
		want                int
	}{
		{"from here", "", "", 200},
		{"from here by IPv6", "::1", "::1", 200},
		{"from the network", "", "192.0.2.7", 401},
		{"to an address of the network", "192.0.2.2", "", 401},
		{"within the network", "192.0.2.2", "192.0.2.7", 401},
		{"from the network by IPv6", "2001:db8::1", "2001:db8::2", 401},
		{"from nowhere", "", "0.0.0.0", 401},
		{"from here, as IPv6 writes it", "::ffff:127.0.0.1", "::ffff:127.0.0.1", 200},
		{"from the network, as IPv6 writes it", "", "::ffff:192.0.2.7", 401},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan struct{})
		go func() {
			defer close(served)
			f.Server.ServeTCP(elsewhereListener{l, c.local, c.remote})
		}()
		for what, raw := range map[string]string{
			"the fleet": get("/v1/instances"), "a proof": request("GET "+nonce, "", home),
			"with forwarded headers": request("GET /v1/instances", "", home, token, "X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "X-Real-IP: 127.0.0.1"),
			"a command":              post(`{"op":"version"}`),
		} {
			unharmed(t, f, "A12 "+c.name+", "+what, func(t *testing.T) {
				if got := askOn(t, f, dialTo(t, l.Addr().String()), raw); got.StatusCode != c.want {
					t.Errorf("status %d, want %d: %s", got.StatusCode, c.want, got.body)
				}
			})
		}
		l.Close()
		<-served
	}
	unharmed(t, f, "A12 from a real address of this machine", func(t *testing.T) { fromOwnAddress(t, f) })
	unharmed(t, f, "A12 from here, forwarded for somebody", func(t *testing.T) {
		got := ask(t, f, request("GET /v1/instances", "", home, "X-Forwarded-For: 127.0.0.1"))
		if got.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", got.StatusCode)
		}
	})
}

// fromOwnAddress connects to the door from an address of this machine that is
// not on loopback, if there is one and the system routes it.
func fromOwnAddress(t *testing.T, f *servertest.Fleet) {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if ip.IsLoopback() || ip.To4() == nil {
			continue
		}
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}
		c, err := d.Dial("tcp", fill(f, "127.0.0.1:{P}"))
		if err != nil {
			continue
		}
		defer c.Close()
		if got := askOn(t, f, c, get("/v1/instances")); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("from %s: status %d", ip, got.StatusCode)
		}
		return
	}
	t.Skip("no address but loopback can be used here")
}

// Only loopback is listened on.
func TestAttackListen(t *testing.T) {
	f := servertest.Open(t, usual)
	for _, c := range []struct{ name, address string }{
		{"everywhere", "0.0.0.0:0"},
		{"everywhere by IPv6", "[::]:0"},
		{"everywhere, written short", ":0"},
		{"the network", "192.0.2.2:0"},
		{"the network by IPv6", "[2001:db8::1]:0"},
		{"a name", "localhost:0"},
		{"a name that is no address", "example.test:0"},
		{"everywhere, as IPv6 writes it", "[::ffff:0.0.0.0]:0"},
		{"no port", "127.0.0.1"},
		{"nothing that is an address", "127.0.0.1.evil.test:0"},
		{"a number", "2130706433:0"},
	} {
		t.Run("A13 "+c.name, func(t *testing.T) {
			s, err := server.Listen(f.Sup, server.Config{Address: c.address})
			if err == nil {
				s.Close(t.Context())
				t.Fatal("it listens")
			}
			if c.name != "no port" && !errors.Is(err, server.ErrNotLoopback) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// Any address of loopback is as good, and is a name of the door.
func TestListenOnLoopback(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		t.Run(host, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			h, err := lease.OpenHome(filepath.Join(t.TempDir(), "h"))
			if err != nil {
				t.Fatal(err)
			}
			if l, err := net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
				t.Skipf("this machine has no %s", host)
			} else {
				l.Close()
			}
			f := servertest.OpenAt(t, h, server.Config{Address: net.JoinHostPort(host, "0")})
			defer f.End()
			if err := f.Server.Check(t.Context()); err != nil {
				t.Errorf("the door does not answer itself: %v", err)
			}
			at := net.JoinHostPort(host, fill(f, "{P}"))
			for _, name := range []string{at, fill(f, "localhost:{P}")} {
				if got := ask(t, f, request("GET /v1/instances", "", "Host: "+name, token, "Origin: http://"+name)); got.StatusCode != http.StatusOK {
					t.Errorf("as %s: status %d", name, got.StatusCode)
				}
			}
		})
	}
}

// The kernel says who is at the other end of the socket.
func TestAttackSocketByOther(t *testing.T) {
	if os.Geteuid() != 0 || becomeThread(0) != nil {
		t.Skip("needs root, and threads with users of their own")
	}
	f := victim(t, usual)
	dir := filepath.Dir(f.Record.Socket)
	unharmed(t, f, "A14 another user at the closed folder", func(t *testing.T) {
		if _, err := connectAs(65534, f.Record.Socket); !errors.Is(err, syscall.EACCES) {
			t.Errorf("the socket can be reached: %v", err)
		}
	})
	unharmed(t, f, "A14 another user at an opened folder", func(t *testing.T) {
		open := []string{dir, f.Home.Dir()}
		for d := filepath.Dir(f.Home.Dir()); d != "/"; d = filepath.Dir(d) {
			open = append(open, d)
		}
		for _, d := range open {
			st, err := os.Stat(d)
			if err != nil {
				t.Fatal(err)
			}
			defer os.Chmod(d, st.Mode().Perm()|st.Mode()&os.ModeSticky)
			os.Chmod(d, st.Mode().Perm()|0o055|st.Mode()&os.ModeSticky)
		}
		os.Chmod(f.Record.Socket, 0o666)
		defer os.Chmod(f.Record.Socket, 0o600)
		for name, raw := range map[string]string{
			"nothing": request("GET /v1/instances", "", "Host: x"), "even the token": request("GET /v1/instances", "", "Host: x", token),
			"a proof": request("GET /v1/identity?nonce="+strings.Repeat("0", 64), "", "Host: x"), "a command": request("POST /v1/commands", plant, "Host: x", isJSON),
		} {
			c, err := connectAs(65534, f.Record.Socket)
			if err != nil {
				t.Fatal(err)
			}
			if got := askOn(t, f, c, raw); got.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: status %d", name, got.StatusCode)
			}
			c.Close()
		}
	})
}

// connectAs connects to a socket as another user. Who that is, the kernel notes
// at the connect, for the thread that does it.
func connectAs(uid int, path string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	if err := becomeThread(uid); err != nil {
		return nil, err
	}
	err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	if back := becomeThread(0); back != nil {
		panic(back)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// Nothing of a home is for others, whatever the umask.
func TestAttackSecretsAtRest(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	f := victim(t, usual)
	in := f.Await("victim", wire.Running)
	f.AwaitEvents(in.ID, 2)
	ask(t, f, get("/v1/instances"))
	n := 0
	err := filepath.WalkDir(f.Home.Dir(), func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return nil // it is gone
		}
		n++
		want := fs.FileMode(0o600)
		if st.IsDir() {
			want = 0o700
		}
		if st.Mode().Perm() != want {
			t.Errorf("A26 %s has mode %v, want %v", strings.TrimPrefix(path, f.Home.Dir()), st.Mode(), want)
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Errorf("A26 only %d files were seen: %v", n, err)
	}
	for _, p := range servertest.Commands(f.Home) {
		if strings.Contains(p, f.Record.Token) {
			t.Errorf("A26 the token stands in a command line: %s", p)
		}
	}
}

// A new supervisor has a new token, and the old one is worth nothing.
func TestAttackOldToken(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	h, err := lease.OpenHome(filepath.Join(t.TempDir(), "h"))
	if err != nil {
		t.Fatal(err)
	}
	first := servertest.OpenAt(t, h, server.Config{})
	old := first.Record.Token
	open := listen(t, first, "/v1/events", "")
	open.of("snapshot")
	first.End()
	if f := open.of("evicted"); f.data != `{"reason":"shutdown","resume":""}` {
		t.Errorf("A11 the old token's stream ends with %s", f.data)
	}
	if _, err := open.next(); err == nil {
		t.Error("A11 the old token's stream goes on")
	}
	second := servertest.OpenAt(t, h, server.Config{})
	defer second.End()
	if second.Record.Token == old || len(old) != 64 {
		t.Fatal("A11 the token is not a new one")
	}
	if got := ask(t, second, request("GET /v1/instances", "", home, "Authorization: Bearer "+old)); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("A11 the old token: status %d", got.StatusCode)
	}
}
