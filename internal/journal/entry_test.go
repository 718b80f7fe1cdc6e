package journal

import (
	"bytes"
	"encoding/base64"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/wire"
)

func TestRawOutputIsAnEventOfTextOrBase64(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload string
		data    string
	}{
		{"a line", "hello\n", `{"text":"hello\n","lines":1}`},
		{"half a line", "hello", `{"text":"hello","lines":0}`},
		{"several lines", "a\nb\n\nc", `{"text":"a\nb\n\nc","lines":3}`},
		{"only a newline", "\n", `{"text":"\n","lines":1}`},
		{"quotes and backslashes", `say "\n"`, `{"text":"say \"\\n\"","lines":0}`},
		{"control characters", "\x00\x01\x1b[31mred\x7f\t\r\n", `{"text":"\u0000\u0001\u001b[31mred` + "\x7f" + `\t\r\n","lines":1}`},
		{"separators", "\u2028\u2029\u0085\ufeff", "{\"text\":\"\u2028\u2029\u0085\ufeff\",\"lines\":0}"},
		{"beyond the basic plane", "é 你 😀\n", `{"text":"é 你 😀\n","lines":1}`},
		{"no UTF-8", "a\xffb\n", `{"base64":"Yf9iCg==","lines":1}`},
		{"half a character", "\xe4\xbd", `{"base64":"5L0=","lines":0}`},
		{"what looks like a record", `{"seq":2,"time":"2026-01-01T00:00:00Z","raw":3,"type":"output","lines":0}` + "\n", `{"text":"{\"seq\":2,\"time\":\"2026-01-01T00:00:00Z\",\"raw\":3,\"type\":\"output\",\"lines\":0}\n","lines":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t)
			j, _ := open(t, dir, Config{})
			if err := j.AppendRaw(wire.EventOutput, []byte(c.payload)); err != nil {
				t.Fatal(err)
			}
			add(t, j, 1) // what follows is not eaten
			_, events := whole(t, dir)
			if len(events) != 2 {
				t.Fatalf("%d events, want 2", len(events))
			}
			if got := string(events[0].Data); got != c.data {
				t.Errorf("data %s, want %s", got, c.data)
			}
			r := NewReader(dir)
			defer r.Close()
			e, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if b, raw := e.Raw(); !raw || string(b) != c.payload {
				t.Errorf("Raw returns %q, %t; want what was said", b, raw)
			}
			if !jsontext.Value(e.AppendJSON(nil)).IsValid() {
				t.Errorf("no JSON: %s", e.AppendJSON(nil))
			}
		})
	}
}

func TestStandardErrorHasNoLines(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	if err := j.AppendRaw(wire.EventStderr, []byte("oh\n")); err != nil {
		t.Fatal(err)
	}
	_, events := whole(t, dir)
	if got, want := string(events[0].Data), `{"text":"oh\n"}`; got != want {
		t.Errorf("data %s, want %s", got, want)
	}
}

func TestNothingSaidIsNoEvent(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{})
	if err := j.AppendRaw(wire.EventOutput, nil); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(true); err != nil {
		t.Fatal(err)
	}
	if n := j.Last().Seq; n != 0 {
		t.Errorf("the last number is %d, want 0", n)
	}
}

func TestEventsComeBackAsTheyWere(t *testing.T) {
	dir := folder(t)
	j, _ := open(t, dir, Config{Instance: `odd "id"` + "\u2028"})
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000, time.FixedZone("east", 7200))
	first := wire.NewEvent(wire.EventState, wire.StateData{State: wire.Running, Run: 3, Holds: []wire.Hold{}}).In("s\"1", "t,\"type\":\"x\"")
	first.Time = at
	second := wire.NewEvent(wire.EventError, wire.ErrorData{Code: wire.Internal, Message: "a\nb\x00\u2029"})
	if err := j.Append(false, &first, &second); err != nil {
		t.Fatal(err)
	}
	_, events := whole(t, dir)
	first.Time = at.UTC()
	if diff := cmp.Diff([]wire.Event{first, second}, events); diff != "" {
		t.Errorf("wrote and read differ (-wrote +read):\n%s", diff)
	}
	if first.Seq != 1 || second.Seq != 2 || first.Instance != `odd "id"`+"\u2028" {
		t.Errorf("the caller's events are %+v and %+v", first, second)
	}
	if second.Time.IsZero() || time.Since(second.Time) > time.Hour {
		t.Errorf("the time given is %v", second.Time)
	}
}

// decoded returns the bytes that an output event tells.
func decoded(t testing.TB, data jsontext.Value) []byte {
	var d wire.OutputData
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	switch {
	case d.Text != nil && d.Base64 == nil:
		return []byte(*d.Text)
	case d.Base64 != nil && d.Text == nil:
		b, err := base64.StdEncoding.DecodeString(*d.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Fatalf("neither text nor base64: %s", data)
	return nil
}

func FuzzParseLine(f *testing.F) {
	for _, s := range []string{
		`{"seq":7,"time":"2026-01-02T03:04:05.678901Z","instance":"i","session":null,"turn":null,"type":"state","data":{}}`,
		`{"seq":8,"time":"2026-01-02T03:04:05Z","raw":23,"type":"output","lines":1}`,
		`{"seq":8,"time":"2026-01-02T03:04:05Z","raw":99999999999,"type":"output","lines":1}`,
		`{"seq":8,"time":"9999-12-31T23:59:59-01:00","raw":1,"type":"output","lines":0}`,
		`{"seq":8,"time":"2026-01-02T03:04:05Z","raw":1,"type":"output","lines":18446744073709551615}`,
		`{"seq":18446744073709551616,"time":"2026-01-02T03:04:05Z","type":"x"}`,
		`{"seq":`, `{"seq":1,"time":"`, `{"seq":1,"time":"","raw":`, ``, `{}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, size, err := parseLine(line)
		if err != nil {
			return
		}
		if !e.raw {
			if got := e.AppendJSON(nil); !bytes.Equal(got, line) {
				t.Errorf("%q came back as %q", line, got)
			}
			return
		}
		if size < 0 || size > maxRecord {
			t.Fatalf("a payload of %d bytes", size)
		}
		again := appendRawLine(nil, e.Seq, e.Time, e.Type, size, e.lines)
		e2, size2, err := parseLine(again[:len(again)-1])
		if err != nil {
			t.Fatalf("%q is written as %q: %v", line, again, err)
		}
		if e2.Seq != e.Seq || !e2.Time.Equal(e.Time) || e2.Type != e.Type || e2.lines != e.lines || size2 != size {
			t.Errorf("%q came back as %q", line, again)
		}
	})
}

func FuzzRawPayload(f *testing.F) {
	for _, s := range []string{"", "x", "\n", "a\r\nb", "\xff", "é 你 😀", "{\"seq\":2}\n", "\x00"} {
		f.Add([]byte(s))
	}
	dir := f.TempDir()
	j, _, err := Open(dir, Config{Instance: instance, Boot: boot, Segment: 64 << 10, Max: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { j.Close() })
	f.Fuzz(func(t *testing.T, payload []byte) {
		before := j.Last().Seq
		if err := j.AppendRaw(wire.EventOutput, payload); err != nil {
			t.Fatal(err)
		}
		r := NewReader(dir)
		defer r.Close()
		if err := r.SeekAfter(before); err != nil {
			t.Fatal(err)
		}
		_, events := all(t, r)
		if len(payload) == 0 {
			if len(events) > 0 {
				t.Errorf("%d events for nothing", len(events))
			}
			return
		}
		if len(events) != 1 || !bytes.Equal(decoded(t, events[0].Data), payload) {
			t.Errorf("%q came back as %v", payload, events)
		}
	})
}
