package transporttest_test

import (
	"context"
	"io"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/castctl/castctl/transport"
	"github.com/castctl/castctl/transport/transporttest"
)

func TestMain(m *testing.M) {
	transporttest.Main()
	os.Exit(m.Run())
}

func TestMemoryWorksInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		m, agent := transporttest.NewMemory(0, transport.Handlers{Message: func(b []byte) { said = append(said, string(b)) }})
		if err := m.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() { // an agent that thinks for an hour
			for {
				line, ok := agent.Hear()
				if !ok {
					return // and has no manners
				}
				time.Sleep(time.Hour)
				agent.Say(line + "\n")
			}
		}()
		start := time.Now()
		if err := m.Write([]byte(`{"a":1}`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(said) != 1 || said[0] != `{"a":1}` {
			t.Errorf("the agent said %q", said)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != time.Hour+time.Minute {
			t.Errorf("it took %v", d)
		}
	})
}

func TestAFramerIsAllThatReadingTakes(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		io.WriteString(w, "{\"a\":1}\n{\"b\"")
		io.WriteString(w, ":2}\r\n{\"c\":")
		w.Close()
	}()
	var said []string
	f := transport.NewFramer(0, transport.Handlers{
		Message: func(b []byte) { said = append(said, string(b)) },
		Notice:  func(n transport.Notice) { said = append(said, string(n.Kind)) },
	})
	if _, err := io.Copy(f, r); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if want := []string{`{"a":1}`, `{"b":2}`, "torn"}; !slices.Equal(said, want) {
		t.Errorf("told %q, want %q", said, want)
	}
}
