package wire_test

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/castctl/castctl/wire"
)

func hashOf(t interface{ Fatalf(string, ...any) }, ops *wire.Set, line string) [32]byte {
	r, err := ops.Decode([]byte(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	h, herr := wire.Hash(r.Command)
	if herr != nil {
		t.Fatalf("%s: %v", line, herr)
	}
	return h
}

// Two spellings of one command are one command, and two commands are two.
func TestHash(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b string // commands
		same bool
	}{
		{"white space", `{"op":"stop","instance":"a"}`, " {\t\"op\" :\"stop\" , \"instance\":\r\n\"a\" } ", true},
		{"the order of members", `{"op":"stop","instance":"a","when_idle":true}`, `{"when_idle":true,"instance":"a","op":"stop"}`, true},
		{
			"the order of members further down",
			`{"op":"start","name":"a","spec":{"argv":["a"],"cwd":"/","restart":{"limit":1,"policy":"never"}},"env":{"A":"1","B":"2"}}`,
			`{"op":"start","name":"a","env":{"B":"2","A":"1"},"spec":{"restart":{"policy":"never","limit":1},"cwd":"/","argv":["a"]}}`, true,
		},
		{"the order of members in an agent's command", `{"op":"submit","instance":"a","command":{"op":"x","b":{"d":1,"c":2}}}`, `{"op":"submit","instance":"a","command":{"b":{"c":2,"d":1},"op":"x"}}`, true},
		{"escapes", `{"op":"stop","instance":"é/\n"}`, `{"\u006fp":"st\u006fp","instance":"\u00e9\/\u000a"}`, true},
		{"escapes in an agent's command", `{"op":"submit","instance":"a","command":{"op":"é"}}`, `{"op":"submit","instance":"a","command":{"\u006fp":"\u00e9"}}`, true},
		{"a false spelled out", `{"op":"stop","instance":"a"}`, `{"op":"stop","instance":"a","when_idle":false}`, true},
		{"a false spelled out further down", `{"op":"configure","instance":"a","spec":{"argv":["a"],"cwd":"/"}}`, `{"op":"configure","instance":"a","spec":{"argv":["a"],"cwd":"/","exclusive":false}}`, true},
		{"a number spelled otherwise in an agent's command", `{"op":"submit","instance":"a","command":{"op":"x","n":0.5}}`, `{"op":"submit","instance":"a","command":{"op":"x","n":5e-1}}`, true},

		{"another value", `{"op":"stop","instance":"a"}`, `{"op":"stop","instance":"b"}`, false},
		{"another case", `{"op":"stop","instance":"a"}`, `{"op":"stop","instance":"A"}`, false},
		{"another normal form", "{\"op\":\"stop\",\"instance\":\"\u00e9\"}", "{\"op\":\"stop\",\"instance\":\"e\u0301\"}", false},
		{"another op with the same members", `{"op":"stop","instance":"a"}`, `{"op":"remove","instance":"a"}`, false},
		{"one more member", `{"op":"stop","instance":"a"}`, `{"op":"stop","instance":"a","when_idle":true}`, false},
		{"the order of a list", `{"op":"start","name":"a","spec":{"argv":["a","b"],"cwd":"/"}}`, `{"op":"start","name":"a","spec":{"argv":["b","a"],"cwd":"/"}}`, false},
		{"where a list is cut", `{"op":"start","name":"a","spec":{"argv":["a","b"],"cwd":"/"}}`, `{"op":"start","name":"a","spec":{"argv":["a,b"],"cwd":"/"}}`, false},
		{"an explicit choice that happens to be the default", `{"op":"configure","instance":"a","spec":{"argv":["a"],"cwd":"/"}}`, `{"op":"configure","instance":"a","spec":{"argv":["a"],"cwd":"/","resume":true}}`, false},
		{"no environment and an empty one", `{"op":"restart","instance":"a"}`, `{"op":"restart","instance":"a","env":{}}`, false},
		{"integers beyond a double", `{"op":"reap","targets":[{"pid":1,"start_ticks":9007199254740993}]}`, `{"op":"reap","targets":[{"pid":1,"start_ticks":9007199254740992}]}`, false},
		{"integers beyond a double in an agent's command", `{"op":"submit","instance":"a","command":{"op":"x","n":18446744073709551616}}`, `{"op":"submit","instance":"a","command":{"op":"x","n":18446744073709551617}}`, false},
		{"a text and the same text in a block", `{"op":"submit","instance":"a","text":"x"}`, `{"op":"submit","instance":"a","content":[{"type":"text","text":"x"}]}`, false},
		{"a member of null in an agent's command", `{"op":"submit","instance":"a","command":{"op":"x"}}`, `{"op":"submit","instance":"a","command":{"op":"x","n":null}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			same := hashOf(t, wire.Control, in(c.a)) == hashOf(t, wire.Control, in(c.b))
			if same != c.same {
				t.Errorf("same hash: %v, want %v\n%s\n%s", same, c.same, c.a, c.b)
			}
		})
	}
}

// The id is not part of the content, and all golden commands differ.
func TestHashesOfGoldenRequests(t *testing.T) {
	for _, p := range programs {
		seen := map[[32]byte]string{}
		for _, line := range p.encoded(t) {
			h := hashOf(t, p.ops, string(line))
			if other, twice := seen[h]; twice {
				t.Errorf("one hash for\n%s\n%s", other, line)
			}
			seen[h] = string(line)
		}
	}
}

// However the text of a command is written, its hash is the same.
func TestHashOfAnySpelling(t *testing.T) {
	var lines []string
	for _, line := range programs[0].encoded(t) {
		lines = append(lines, string(line))
	}
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom(lines).Draw(t, "line")
		spelled := respell(t, jsontext.Value(line))
		if hashOf(t, wire.Control, line) != hashOf(t, wire.Control, spelled) {
			t.Fatalf("another hash for\n%s\n%s", line, spelled)
		}
	})
}

// respell writes a value in another order and with other white space.
func respell(t *rapid.T, v jsontext.Value) string {
	space := func() string { return rapid.StringOfN(rapid.RuneFrom([]rune(" \t\r\n")), 0, 2, -1).Draw(t, "space") }
	switch v.Kind() {
	case jsontext.KindBeginObject:
		var parts []string
		for _, m := range split(t, v) {
			parts = append(parts, space()+m[0]+space()+":"+space()+respell(t, jsontext.Value(m[1]))+space())
		}
		out := "{"
		for i, p := range rapid.Permutation(parts).Draw(t, "order") {
			if i > 0 {
				out += ","
			}
			out += p
		}
		return out + "}"
	case jsontext.KindBeginArray:
		out := "["
		for i, m := range split(t, v) {
			if i > 0 {
				out += ","
			}
			out += space() + respell(t, jsontext.Value(m[1])) + space()
		}
		return out + "]"
	}
	return string(v)
}

// split returns the members of an object, or the elements of an array with an
// empty name.
func split(t *rapid.T, v jsontext.Value) [][2]string {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	open, err := d.ReadToken()
	if err != nil {
		t.Fatal(err)
	}
	named := open.Kind() == jsontext.KindBeginObject
	var out [][2]string
	for d.PeekKind() != jsontext.KindEndObject && d.PeekKind() != jsontext.KindEndArray {
		var m [2]string
		if named {
			name, err := d.ReadValue()
			if err != nil {
				t.Fatal(err)
			}
			m[0] = string(name)
		}
		value, err := d.ReadValue()
		if err != nil {
			t.Fatal(err)
		}
		m[1] = string(value)
		out = append(out, m)
	}
	return out
}
