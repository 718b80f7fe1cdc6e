package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/castctl/castctl/internal/server"
	"github.com/castctl/castctl/internal/server/servertest"
	"github.com/castctl/castctl/lease"
	"github.com/castctl/castctl/wire"
)

// What a client can know of a failed request, it says: whether anything may
// have been changed.
func TestDelivery(t *testing.T) {
	say := func(s string) func(net.Conn, *http.Request, string) bool {
		return func(c net.Conn, _ *http.Request, _ string) bool { io.WriteString(c, s); return false }
	}
	body := func(status int, b string) func(net.Conn, *http.Request, string) bool {
		return func(c net.Conn, _ *http.Request, _ string) bool { answer(c, status, b); return false }
	}
	failure := func(status int, members string) func(net.Conn, *http.Request, string) bool {
		return body(status, `{"version":1,"id":"the-id","error":{"code":"conflict","message":"no"`+members+`}}`)
	}
	for _, c := range []struct {
		name     string
		then     func(net.Conn, *http.Request, string) bool
		code     wire.Code
		delivery wire.Delivery
	}{
		{"closes when it has read the request", say(""), wire.Unavailable, wire.DeliveryUnknown},
		{"closes in the middle of the head", say("HTTP/1.1 200 OK\r\nContent-"), wire.Unavailable, wire.DeliveryUnknown},
		{"closes in the middle of the body", say("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"version\":1"), wire.Unavailable, wire.DeliveryUnknown},
		{"speaks no HTTP", say("hello\n"), wire.Unavailable, wire.DeliveryUnknown},
		{"says nothing but ok", say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), wire.Internal, wire.DeliveryUnknown},
		{"answers with garbage", body(200, "garbage"), wire.Internal, wire.DeliveryUnknown},
		{"answers with half a response", body(200, `{"version":1,"id":"the-id","res`), wire.Internal, wire.DeliveryUnknown},
		{"answers with an empty object", body(200, `{}`), wire.Internal, wire.DeliveryUnknown},
		{"answers with null", body(200, `null`), wire.Internal, wire.DeliveryUnknown},
		{"answers without a result", body(200, `{"version":1,"id":"the-id"}`), wire.Internal, wire.DeliveryUnknown},
		{"answers to another", body(200, `{"version":1,"id":"other","result":{}}`), wire.Internal, wire.DeliveryUnknown},
		{"answers to nobody", body(200, `{"version":1,"id":null,"result":{}}`), wire.Internal, wire.DeliveryUnknown},
		{"answers with a result of another shape", body(200, `{"version":1,"id":"the-id","result":[1]}`), wire.Internal, wire.DeliveryUnknown},
		{"fails in a way of its own", body(500, "<html>oops</html>"), wire.Internal, wire.DeliveryUnknown},
		{"refuses, and knows", failure(409, `,"delivery":"not_sent","details":{}`), wire.Conflict, wire.NotSent},
		{"refuses, and does not know", failure(409, `,"delivery":"unknown","details":{}`), wire.Conflict, wire.DeliveryUnknown},
		{"refuses, and does not say", failure(409, ``), wire.Conflict, wire.DeliveryUnknown},
		{"refuses in words of a later version", failure(409, `,"delivery":"perhaps","details":{}`), wire.Conflict, wire.DeliveryUnknown},
		{"wants a credential", body(401, `{"error":{"code":"unauthorized","message":"no","delivery":"not_sent","details":{}}}`), wire.Unauthorized, wire.NotSent},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, d := connected(t, c.then)
			var v wire.VersionResult
			err := wireError(t, cl.Call(t.Context(), "the-id", wire.GetVersion{}, &v))
			if err.Code != c.code || err.Delivery != c.delivery || err.Details.Method != "version" || err.Message == "" {
				t.Errorf("the error is %+v", err)
			}
			d.close() // whatever it was, the next request does not get there
			err = wireError(t, cl.Call(t.Context(), "the-id", wire.GetVersion{}, &v))
			if err.Code != wire.Unavailable || err.Delivery != wire.NotSent || err.Details.Method != "version" {
				t.Errorf("the next error is %+v", err)
			}
		})
	}
}

// One that closed before a request is found out before it is sent.
func TestDeliveryAfterClose(t *testing.T) {
	for _, c := range []struct {
		name string
		last string // what it says before it closes
	}{
		{"it said nothing", ""},
		{"it said that it was idle for too long", "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, d := connected(t, func(c net.Conn, r *http.Request, body string) bool {
				t.Errorf("a request came: %s", body)
				return false
			})
			d.mu.Lock()
			conn := d.conns[0]
			d.mu.Unlock()
			io.WriteString(conn, c.last)
			d.close()
			err := wireError(t, cl.Call(t.Context(), "the-id", wire.Stop{Instance: "x"}, nil))
			if err.Code != wire.Unavailable || err.Delivery != wire.NotSent {
				t.Errorf("the error is %+v", err)
			}
		})
	}
	t.Run("it said so in its answer", func(t *testing.T) {
		cl, _ := connected(t, func(c net.Conn, _ *http.Request, _ string) bool {
			b := `{"version":1,"id":"the-id","result":{}}`
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
			return true
		})
		if err := cl.Call(t.Context(), "the-id", wire.GetVersion{}, nil); err != nil {
			t.Fatal(err)
		}
		if err := wireError(t, cl.Call(t.Context(), "the-id", wire.GetVersion{}, nil)); err.Delivery != wire.NotSent {
			t.Errorf("the error is %+v", err)
		}
	})
	t.Run("we closed it", func(t *testing.T) {
		cl, _ := connected(t, nil)
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
		if err := wireError(t, cl.Call(t.Context(), "the-id", wire.GetVersion{}, nil)); err.Code != wire.Unavailable || err.Delivery != wire.NotSent {
			t.Errorf("the error is %+v", err)
		}
		if err := cl.Close(); err != nil {
			t.Errorf("closing twice: %v", err)
		}
	})
}

// A request of which a part has left may have arrived: nobody knows which.
func TestDeliveryOfHalf(t *testing.T) {
	h := newHome(t)
	r := published(t, h, func(*lease.Server) {})
	newDoor(t, r.Socket, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(in)
			if err != nil || req.URL.Path != "/v1/identity" {
				return // without the body
			}
			answer(c, 200, fmt.Sprintf(`{"instance_id":%q,"proof":%q}`, r.InstanceID, server.Proof(r.Token, r.InstanceID, req.URL.Query().Get("nonce"), r.Socket)))
		}
	})
	cl := mustConnect(t, h)
	err := wireError(t, cl.Call(t.Context(), "a", wire.Submit{Instance: "x", Text: strings.Repeat("x", 16<<20)}, nil))
	if err.Code != wire.Unavailable || err.Delivery != wire.DeliveryUnknown {
		t.Errorf("the error is %+v", err)
	}
}

// A context that ends ends the waiting. What was sent by then may have been
// carried out.
func TestDeliveryAfterCancel(t *testing.T) {
	asked := make(chan struct{})
	release := make(chan struct{})
	cl, d := connected(t, func(net.Conn, *http.Request, string) bool {
		close(asked)
		<-release
		return false
	})
	defer close(release)
	before := d.heard()

	ended, end := context.WithCancel(t.Context())
	end()
	for range 20 {
		if err := wireError(t, cl.Call(ended, "a", wire.GetVersion{}, nil)); err.Delivery != wire.NotSent || err.Code != wire.Unavailable {
			t.Fatalf("ended before: %+v", err)
		}
	}
	if heard := d.heard(); heard != before {
		t.Fatalf("something was sent:\n%s", heard)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := cl.Call(ctx, "b", wire.GetVersion{}, nil)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Delivery != wire.DeliveryUnknown || !strings.Contains(e.Message, context.Canceled.Error()) {
			t.Errorf("ended while it was waited for: %v", err)
		}
	})
	<-asked
	// Another waits for its turn, and gives up.
	turn, giveUp := context.WithCancel(t.Context())
	wg.Go(func() {
		err := cl.Call(turn, "c", wire.GetVersion{}, nil)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Delivery != wire.NotSent {
			t.Errorf("ended before its turn: %v", err)
		}
	})
	giveUp()
	cancel()
	wg.Wait()
	if err := wireError(t, cl.Call(t.Context(), "d", wire.GetVersion{}, nil)); err.Delivery != wire.NotSent {
		t.Errorf("after the loss: %+v", err)
	}
	if n := strings.Count(d.heard(), "POST"); n != 1 {
		t.Errorf("%d requests were sent", n)
	}
}

// What is too large is known before anything is sent, and costs the connection
// nothing.
func TestTooLargeIsNotSent(t *testing.T) {
	_, cl := fleet(t)
	err := wireError(t, cl.Call(t.Context(), "a", wire.Submit{Instance: "x", Text: strings.Repeat("x", wire.MaxBody)}, nil))
	if err.Code != wire.RequestTooLarge || err.Delivery != wire.NotSent || err.Details.Method != "submit" {
		t.Errorf("the error is %+v", err)
	}
	if err := cl.Call(t.Context(), "b", wire.GetVersion{}, nil); err != nil {
		t.Error(err)
	}
}

func TestCall(t *testing.T) {
	f, cl := fleet(t)
	in := f.Start("one", "/bin/sh", "-c", "exec sleep 100000")
	var got wire.GetResult
	if err := cl.Call(t.Context(), wire.NewID(), wire.Get{Instance: "one"}, &got); err != nil || got.Instance.ID != in.ID {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct {
		name    string
		command wire.Command
		want    error
	}{
		{"no such instance", wire.Get{Instance: "none"}, wire.ErrNotFound},
		{"a name of another spec", wire.Start{Name: "one", Spec: &wire.Spec{Argv: []string{"/bin/true"}, Cwd: "/"}}, wire.ErrConflict},
		{"a bad name", wire.Start{Name: "../x", Spec: &wire.Spec{Argv: []string{"/bin/true"}, Cwd: "/"}}, &wire.Error{Code: wire.InvalidRequest}},
		{"a submit to plain", wire.Submit{Instance: "one", Text: "hello"}, &wire.Error{Code: wire.UnsupportedMethod}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := cl.Call(t.Context(), wire.NewID(), c.command, nil)
			if !errors.Is(err, c.want) || wireError(t, err).Delivery != wire.NotSent || wireError(t, err).Details.Method != c.command.Op() {
				t.Errorf("the error is %+v", err)
			}
		})
	}
	if b, err := cl.Get(t.Context(), "/v1/instances/one"); err != nil || !strings.Contains(string(b), in.ID) {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := cl.Get(t.Context(), "/v1/instances/none"); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("the error is %v", err)
	}
	if _, err := cl.Get(t.Context(), "/v1/instances?x=1"); !errors.Is(err, &wire.Error{Code: wire.InvalidRequest}) {
		t.Errorf("the error is %v", err)
	}
}

// A request line goes through as it is, and so does what is answered.
func TestForward(t *testing.T) {
	_, cl := fleet(t)
	for line, want := range map[string]string{
		`{"version":1,"id":"a","command":{"op":"version"}}`: `"id":"a","result":{`,
		`{"version":9,"id":"a","command":{"op":"version"}}`: `"id":"a","error":{"code":"unsupported_version"`,
		`{"version":1,"id":"a","command":{"op":"fly"}}`:     `"id":"a","error":{"code":"unsupported_method"`,
		`{"version":1,"id":"","command":{"op":"version"}}`:  `"id":null,"error":{"code":"invalid_request"`,
		`nonsense`: `"id":null,"error":{"code":"invalid_request"`,
	} {
		b, err := cl.Forward(t.Context(), "version", []byte(line))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %s, %v", line, b, err)
		}
	}
}

// Requests of many goroutines take turns on one connection, and each gets its
// own answer.
func TestCallFromMany(t *testing.T) {
	f, cl := fleet(t)
	for i := range 8 {
		f.Start(fmt.Sprintf("i%d", i), "/bin/sh", "-c", "exec sleep 100000")
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprintf("i%d", i%8)
			var got wire.GetResult
			if err := cl.Call(t.Context(), wire.NewID(), wire.Get{Instance: name}, &got); err != nil || got.Instance.Name != name {
				t.Errorf("%s: %s, %v", name, got.Instance.Name, err)
			}
		})
	}
	wg.Wait()
}

// A retry with the same id does nothing twice.
func TestRetryAfterLoss(t *testing.T) {
	f, cl := fleet(t)
	f.Start("one", "/bin/sh", "-c", "exec sleep 100000")
	var first, second wire.InstanceResult
	cmd := wire.RestartInstance{Instance: "one"}
	if err := cl.Call(t.Context(), "the-id", cmd, &first); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	if err := mustConnect(t, f.Home).Call(t.Context(), "the-id", cmd, &second); err != nil {
		t.Fatal(err)
	}
	if first.Receipt.CommittedAt != second.Receipt.CommittedAt || first.Instance.Run != second.Instance.Run {
		t.Errorf("it was carried out twice: %+v, %+v", first, second)
	}
}

// The supervisor keeps a connection through its socket for as long as it may be
// idle; over TCP it ends, and the client knows before it sends.
func TestIdleConnection(t *testing.T) {
	f := servertest.Open(t, server.Limits{Idle: 20 * time.Millisecond})
	local := mustConnect(t, f.Home)
	if err := os.Remove(f.Record.Socket); err != nil {
		t.Fatal(err)
	}
	tcp := mustConnect(t, f.Home)
	for range 2 { // others that come later, and are idle for as long
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", f.Record.Port))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", f.Record.Port)
		io.Copy(io.Discard, c)
		c.Close()
	}
	if err := wireError(t, tcp.Call(t.Context(), "a", wire.GetVersion{}, nil)); err.Code != wire.Unavailable || err.Delivery != wire.NotSent {
		t.Errorf("over TCP: %+v", err)
	}
	if err := local.Call(t.Context(), "b", wire.GetVersion{}, nil); err != nil {
		t.Errorf("through the socket: %v", err)
	}
}
