package wire_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// in puts a command into a good envelope.
func in(command string) string { return `{"version":1,"id":"x","command":` + command + `}` }

// What is refused, how, where, and whether the answer carries the id.
var refusals = []struct {
	name    string
	line    string
	code    wire.Code
	pointer string
	keepsID bool
}{
	// Nothing that is not exactly one JSON value is read.
	{"empty", ``, wire.InvalidRequest, "", false},
	{"not JSON", `hello`, wire.InvalidRequest, "", false},
	{"a truncated object", `{"version":1,"id":"x","command":{"op":"sweep"}`, wire.InvalidRequest, "", false},
	{"trailing garbage", in(`{"op":"sweep"}`) + ` x`, wire.InvalidRequest, "", false},
	{"a trailing brace", in(`{"op":"sweep"}`) + `}`, wire.InvalidRequest, "", false},
	{"a trailing NUL", in(`{"op":"sweep"}`) + "\x00", wire.InvalidRequest, "", false},
	{"two values on a line", in(`{"op":"sweep"}`) + in(`{"op":"sweep"}`), wire.InvalidRequest, "", false},
	{"two values with a space", in(`{"op":"sweep"}`) + ` 1`, wire.InvalidRequest, "", false},
	{"a comment", in(`{"op":"sweep"}`) + `// so`, wire.InvalidRequest, "", false},
	{"a trailing comma", in(`{"op":"sweep",}`), wire.InvalidRequest, "/command", false},
	{"single quotes", `{'version':1}`, wire.InvalidRequest, "", false},
	{"NaN", in(`{"op":"stop","instance":"a","timeout_ms":NaN}`), wire.InvalidRequest, "/command/timeout_ms", false},
	{"a number with a plus", in(`{"op":"stop","instance":"a","timeout_ms":+1}`), wire.InvalidRequest, "/command/timeout_ms", false},
	{"a leading zero", in(`{"op":"stop","instance":"a","timeout_ms":01}`), wire.InvalidRequest, "/command", false},
	{"a byte order mark", "\ufeff" + in(`{"op":"sweep"}`), wire.InvalidRequest, "", false},
	// The white space of JSON is not that of Unicode.
	{"U+0085 before", "\u0085" + in(`{"op":"sweep"}`), wire.InvalidRequest, "", false},
	{"U+2028 after", in(`{"op":"sweep"}`) + "\u2028", wire.InvalidRequest, "", false},
	{"U+00A0 after", in(`{"op":"sweep"}`) + "\u00a0", wire.InvalidRequest, "", false},
	{"a form feed before", "\f" + in(`{"op":"sweep"}`), wire.InvalidRequest, "", false},
	{"a vertical tab after", in(`{"op":"sweep"}`) + "\v", wire.InvalidRequest, "", false},
	{"nesting without end", strings.Repeat(`[`, 100_000), wire.InvalidRequest, strings.Repeat("/0", 512), false},

	// Invalid UTF-8 and duplicate names, wherever they are.
	{"bad UTF-8 in the id", "{\"version\":1,\"id\":\"\xff\",\"command\":{\"op\":\"sweep\"}}", wire.InvalidRequest, "/id", false},
	{"bad UTF-8 in a string", in("{\"op\":\"submit\",\"instance\":\"a\",\"text\":\"\xc3\x28\"}"), wire.InvalidRequest, "/command/text", false},
	{"bad UTF-8 in a name", in("{\"op\":\"sweep\",\"\xff\":1}"), wire.InvalidRequest, "/command", false},
	{"a lone surrogate", in(`{"op":"submit","instance":"a","text":"\ud800"}`), wire.InvalidRequest, "/command/text", false},
	{"a raw control character", in("{\"op\":\"submit\",\"instance\":\"a\",\"text\":\"a\tb\"}"), wire.InvalidRequest, "/command/text", false},
	{"an overlong NUL", in("{\"op\":\"submit\",\"instance\":\"a\",\"text\":\"\xc0\x80\"}"), wire.InvalidRequest, "/command/text", false},
	{"a duplicate in the envelope", `{"version":1,"id":"x","id":"y","command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"a duplicate op", in(`{"op":"sweep","op":"down"}`), wire.InvalidRequest, "/command/op", false},
	{"a duplicate spelled with an escape", in(`{"op":"stop","instance":"a","\u0069nstance":"b"}`), wire.InvalidRequest, "/command/instance", false},
	{"a duplicate two levels down", in(`{"op":"configure","instance":"a","spec":{"argv":["a"],"cwd":"/","cwd":"/b"}}`), wire.InvalidRequest, "/command/spec/cwd", false},
	{"a duplicate in an environment", in(`{"op":"start","name":"a","env":{"A":"1","A":"2"}}`), wire.InvalidRequest, "/command/env/A", false},
	{"a duplicate in another program's command", in(`{"op":"submit","instance":"a","command":{"op":"z","q":[{"a":1,"a":1}]}}`), wire.InvalidRequest, "/command/command/q/0/a", false},

	// An envelope that is not exactly a version, an id and a command has no id.
	{"an array", `[]`, wire.InvalidRequest, "", false},
	{"a bare null", `null`, wire.InvalidRequest, "", false},
	{"a string", `"x"`, wire.InvalidRequest, "", false},
	{"no members", `{}`, wire.InvalidRequest, "/version", false},
	{"no version", `{"id":"x","command":{"op":"sweep"}}`, wire.InvalidRequest, "/version", false},
	{"no id", `{"version":1,"command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"no command", `{"version":1,"id":"x"}`, wire.InvalidRequest, "/command", false},
	{"no op", in(`{}`), wire.InvalidRequest, "/command/op", false},
	{"a version in quotes", `{"version":"1","id":"x","command":{"op":"sweep"}}`, wire.InvalidRequest, "/version", false},
	{"a version of null", `{"version":null,"id":"x","command":{"op":"sweep"}}`, wire.InvalidRequest, "/version", false},
	{"an id of null", `{"version":1,"id":null,"command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"an id that is a number", `{"version":1,"id":7,"command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"an empty id", `{"version":1,"id":"","command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"a blank id", `{"version":1,"id":" \t\u00a0\u2028","command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"an id of 201 bytes", `{"version":1,"id":"` + strings.Repeat("é", 100) + `x","command":{"op":"sweep"}}`, wire.InvalidRequest, "/id", false},
	{"a command of null", `{"version":1,"id":"x","command":null}`, wire.InvalidRequest, "/command", false},
	{"a command that is a string", `{"version":1,"id":"x","command":"sweep"}`, wire.InvalidRequest, "/command", false},
	{"a command that is an array", `{"version":1,"id":"x","command":[{"op":"sweep"}]}`, wire.InvalidRequest, "/command", false},
	{"an op of null", in(`{"op":null}`), wire.InvalidRequest, "/command/op", false},
	{"an op that is a number", in(`{"op":1}`), wire.InvalidRequest, "/command/op", false},
	{"an unknown member of the envelope", `{"version":1,"id":"x","trace":1,"command":{"op":"sweep"}}`, wire.InvalidRequest, "/trace", false},
	{"the wrong case in the envelope", `{"Version":1,"id":"x","command":{"op":"sweep"}}`, wire.InvalidRequest, "/Version", false},
	{"an unknown member with odd characters", `{"version":1,"id":"x","a/b~c":1,"command":{"op":"sweep"}}`, wire.InvalidRequest, "/a~1b~0c", false},
	{"an op in the wrong case", in(`{"OP":"sweep"}`), wire.InvalidRequest, "/command/op", false},

	// From here on the request has an id.
	{"version 2", `{"version":2,"id":"x","command":{"op":"sweep"}}`, wire.UnsupportedVersion, "/version", true},
	{"version 0", `{"version":0,"id":"x","command":{"op":"sweep"}}`, wire.UnsupportedVersion, "/version", true},
	{"version -1", `{"version":-1,"id":"x","command":{"op":"sweep"}}`, wire.UnsupportedVersion, "/version", true},
	{"version 1.5", `{"version":1.5,"id":"x","command":{"op":"sweep"}}`, wire.UnsupportedVersion, "/version", true},
	{"version 1e999", `{"version":1e999,"id":"x","command":{"op":"sweep"}}`, wire.UnsupportedVersion, "/version", true},
	{"version 2 comes before an unknown op", `{"version":2,"id":"x","command":{"op":"new_in_2"}}`, wire.UnsupportedVersion, "/version", true},
	{"an unknown op", in(`{"op":"fly"}`), wire.UnsupportedMethod, "/command/op", true},
	{"an empty op", in(`{"op":""}`), wire.UnsupportedMethod, "/command/op", true},
	{"an op with a space", in(`{"op":"sweep "}`), wire.UnsupportedMethod, "/command/op", true},
	{"the op of another case", in(`{"op":"Sweep"}`), wire.UnsupportedMethod, "/command/op", true},
	{"an unknown member of a command", in(`{"op":"sweep","hard":true}`), wire.InvalidRequest, "/command/hard", true},
	{"the wrong case of a member", in(`{"op":"stop","Instance":"a"}`), wire.InvalidRequest, "/command/Instance", true},
	{"an unknown member two levels down", in(`{"op":"start","name":"a","spec":{"argv":["a"],"cwd":"/","shell":true}}`), wire.InvalidRequest, "/command/spec/shell", true},
	{"an unknown member three levels down", in(`{"op":"start","name":"a","spec":{"argv":["a"],"cwd":"/","restart":{"max":1}}}`), wire.InvalidRequest, "/command/spec/restart/max", true},
	{"an unknown member in a list", in(`{"op":"apply","instances":[{"name":"a","spec":{"argv":["a"],"cwd":"/"}},{"name":"b","spec":{"argv":["a"],"cwd":"/"},"on":1}]}`), wire.InvalidRequest, "/command/instances/1/on", true},
	{"a missing member", in(`{"op":"stop"}`), wire.InvalidRequest, "/command/instance", true},
	{"a missing member two levels down", in(`{"op":"start","name":"a","spec":{"argv":["a"]}}`), wire.InvalidRequest, "/command/spec/cwd", true},
	{"a string for a number", in(`{"op":"stop","instance":"a","timeout_ms":"1"}`), wire.InvalidRequest, "/command/timeout_ms", true},
	{"a number for a string", in(`{"op":"stop","instance":1}`), wire.InvalidRequest, "/command/instance", true},
	{"a number for a boolean", in(`{"op":"stop","instance":"a","when_idle":1}`), wire.InvalidRequest, "/command/when_idle", true},
	{"an object for a list", in(`{"op":"apply","instances":{}}`), wire.InvalidRequest, "/command/instances", true},
	{"a list for an object", in(`{"op":"start","name":"a","env":[]}`), wire.InvalidRequest, "/command/env", true},
	{"a number in a list of strings", in(`{"op":"start","name":"a","spec":{"argv":["a",1],"cwd":"/"}}`), wire.InvalidRequest, "/command/spec/argv/1", true},
	{"an empty list", in(`{"op":"start","name":"a","spec":{"argv":[],"cwd":"/"}}`), wire.InvalidRequest, "/command/spec/argv", true},
	{"a fraction for an integer", in(`{"op":"stop","instance":"a","timeout_ms":1.5}`), wire.InvalidRequest, "/command/timeout_ms", true},
	{"an integer beyond 64 bits", in(`{"op":"configure","instance":"a","spec":{"argv":["a"],"cwd":"/"},"if_revision":9223372036854775808}`), wire.InvalidRequest, "/command/if_revision", true},
	{"an unsigned integer beyond 64 bits", in(`{"op":"reap","targets":[{"pid":1,"start_ticks":18446744073709551616}]}`), wire.InvalidRequest, "/command/targets/0/start_ticks", true},
	{"a negative unsigned integer", in(`{"op":"reap","targets":[{"pid":1,"start_ticks":-1}]}`), wire.InvalidRequest, "/command/targets/0/start_ticks", true},
	{"a number of a thousand digits", in(`{"op":"stop","instance":"a","timeout_ms":` + strings.Repeat("9", 1000) + `}`), wire.InvalidRequest, "/command/timeout_ms", true},
	{"below the minimum", in(`{"op":"stop","instance":"a","timeout_ms":0}`), wire.InvalidRequest, "/command/timeout_ms", true},
	{"above the maximum", in(`{"op":"stop","instance":"a","timeout_ms":600001}`), wire.InvalidRequest, "/command/timeout_ms", true},
	{"not one of the choices", in(`{"op":"submit","instance":"a","text":"x","if_busy":"maybe"}`), wire.InvalidRequest, "/command/if_busy", true},
	{"a blank instance", in(`{"op":"stop","instance":" \u2003"}`), wire.InvalidRequest, "/command/instance", true},
	{"a name with a capital", in(`{"op":"start","name":"Fix"}`), wire.InvalidRequest, "/command/name", true},
	{"a name of 64 characters", in(`{"op":"start","name":"` + strings.Repeat("a", 64) + `"}`), wire.InvalidRequest, "/command/name", true},
	{"a name with a line end", in(`{"op":"start","name":"a\n"}`), wire.InvalidRequest, "/command/name", true},
	{"a relative path", in(`{"op":"start","name":"a","spec":{"argv":["a"],"cwd":"src"}}`), wire.InvalidRequest, "/command/spec/cwd", true},
	{"a path with a NUL", in(`{"op":"start","name":"a","spec":{"argv":["a"],"cwd":"/\u0000"}}`), wire.InvalidRequest, "/command/spec/cwd", true},
	{"a variable with an equals sign", in(`{"op":"start","name":"a","env":{"A=B":"c"}}`), wire.InvalidRequest, "/command/env/A=B", true},
	{"a variable without a name", in(`{"op":"start","name":"a","env":{"":"c"}}`), wire.InvalidRequest, "/command/env/", true},
	{"a variable with a NUL", in(`{"op":"start","name":"a","env":{"A":"\u0000"}}`), wire.InvalidRequest, "/command/env/A", true},
	{"none of the alternatives", in(`{"op":"submit","instance":"a"}`), wire.InvalidRequest, "/command", true},
	{"two of the alternatives", in(`{"op":"submit","instance":"a","text":"x","command":{"op":"y"}}`), wire.InvalidRequest, "/command", true},
	{"an empty alternative", in(`{"op":"submit","instance":"a","text":""}`), wire.InvalidRequest, "/command/text", true},
	{"half an alternative", in(`{"op":"reap","targets":[{"pid":1}]}`), wire.InvalidRequest, "/command/targets/0", true},
	{"one and a half alternatives", in(`{"op":"reap","targets":[{"id":"a","pid":1}]}`), wire.InvalidRequest, "/command/targets/0", true},
	{"a zero in an alternative", in(`{"op":"reap","targets":[{"pid":1,"start_ticks":0}]}`), wire.InvalidRequest, "/command/targets/0/start_ticks", true},
	{"an unknown kind of block", in(`{"op":"submit","instance":"a","content":[{"type":"audio"}]}`), wire.InvalidRequest, "/command/content/0/type", true},
	{"a block without its member", in(`{"op":"submit","instance":"a","content":[{"type":"image","mime":"a/b"}]}`), wire.InvalidRequest, "/command/content/0/base64", true},
	{"a block with another's member", in(`{"op":"submit","instance":"a","content":[{"type":"text","text":"x","uri":"y"}]}`), wire.InvalidRequest, "/command/content/0/uri", true},
	{"a block with nothing in it", in(`{"op":"submit","instance":"a","content":[{"type":"text","text":""}]}`), wire.InvalidRequest, "/command/content/0/text", true},
	{"a command for an agent without op", in(`{"op":"submit","instance":"a","command":{"up":"y"}}`), wire.InvalidRequest, "/command/command/op", true},
	{"a command for an agent that is a list", in(`{"op":"submit","instance":"a","command":[]}`), wire.InvalidRequest, "/command/command", true},
}

func TestRefused(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.Control.Decode([]byte(c.line))
			if err == nil {
				t.Fatalf("taken for %#v", got)
			}
			if err.Code != c.code || err.Details.Pointer != c.pointer {
				t.Errorf("%s at %q, want %s at %q: %v", err.Code, err.Details.Pointer, c.code, c.pointer, err)
			}
			if want := map[bool]string{true: "x", false: ""}[c.keepsID]; got.ID != want {
				t.Errorf("id %q, want %q", got.ID, want)
			}
			if err.Delivery != wire.NotSent {
				t.Errorf("delivery %s of something that was never read", err.Delivery)
			}
			if strings.Contains(err.Message, "does not fit") {
				t.Errorf("%q: the shape let through what the decoder refused", err.Message)
			}
			if err.Code != wire.UnsupportedVersion && c.keepsID && err.Details.Method == "" && err.Details.Pointer != "/command/op" {
				t.Errorf("the error does not name the method")
			}
		})
	}
}

func TestTaken(t *testing.T) {
	for _, c := range []struct{ name, line string }{
		{"white space everywhere", " \t\r\n{ \"version\" : 1 ,\r\"id\":\"x\",\n\"command\":{\t\"op\" : \"sweep\" } } \r"},
		{"any order", `{"command":{"op":"sweep"},"id":"x","version":1}`},
		{"op last", in(`{"instance":"a","op":"stop"}`)},
		{"a version of 1.0", `{"version":1.0,"id":"x","command":{"op":"sweep"}}`},
		{"a version of 1e0", `{"version":1e0,"id":"x","command":{"op":"sweep"}}`},
		{"escapes in names", `{"\u0076ersion":1,"id":"\u0078","command":{"\u006fp":"sw\u0065ep"}}`},
		{"a surrogate pair", in(`{"op":"submit","instance":"a","text":"\ud83d\ude00"}`)},
		{"separators in strings", in("{\"op\":\"submit\",\"instance\":\"a\",\"text\":\"\u2028\u2029\u0085\ufeff\x7f\\u0000\"}")},
		{"the longest name", in(`{"op":"start","name":"` + strings.Repeat("a", 63) + `"}`)},
		{"the largest start_ticks", in(`{"op":"reap","targets":[{"pid":1,"start_ticks":18446744073709551615}]}`)},
		{"the largest wait", in(`{"op":"stop","instance":"a","timeout_ms":600000,"wait_ms":600000}`)},
		{"anything in an agent's command", in(`{"op":"submit","instance":"a","command":{"op":"","Op":null,"x":[null,1e999]}}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.Control.Decode([]byte(c.line))
			if err != nil {
				t.Fatalf("%v at %q", err, err.Details.Pointer)
			}
			if got.ID != "x" {
				t.Errorf("id %q", got.ID)
			}
		})
	}
}

func TestIDs(t *testing.T) {
	for _, c := range []struct {
		name string
		id   string
		ok   bool
	}{
		{"one character", "a", true},
		{"200 bytes", strings.Repeat("a", 200), true},
		{"201 bytes", strings.Repeat("a", 201), false},
		{"200 bytes in 50 characters", strings.Repeat("😀", 50), true},
		{"204 bytes in 51 characters", strings.Repeat("😀", 51), false},
		{"space around", " a ", true},
		{"nothing", "", false},
		{"a space", " ", false},
		{"the white space of Unicode", "\u00a0\u2003\u2028\u3000", false},
		{"a NUL", "\x00", true},
	} {
		if got := wire.ValidID(c.id); got != c.ok {
			t.Errorf("%s: %v, want %v", c.name, got, c.ok)
		}
	}
}

// null is refused at every position of every golden request, and a member more
// or less is noticed wherever it is.
func TestEveryPosition(t *testing.T) {
	for _, p := range programs {
		for _, line := range p.encoded(t) {
			for _, m := range mutants(line) {
				got, err := p.ops.Decode(m.line)
				if err == nil {
					t.Errorf("%s\ntaken for %#v", m.line, got)
					continue
				}
				if err.Code != wire.InvalidRequest || err.Details.Pointer != m.pointer {
					t.Errorf("%s\n%s at %q, want it at %q: %v", m.line, err.Code, err.Details.Pointer, m.pointer, err)
				}
				kept := strings.HasPrefix(m.pointer, "/command/") && m.pointer != "/command/op"
				if kept != (got.ID != "") {
					t.Errorf("%s\nid %q", m.line, got.ID)
				}
			}
		}
	}
}

// mutant is a line that must be refused at the pointer.
type mutant struct {
	line    []byte
	pointer string
}

// mutants replaces each value by null, and adds an unknown member to each
// object, outside of what belongs to other programs.
func mutants(line []byte) []mutant {
	var out []mutant
	d := jsontext.NewDecoder(bytes.NewReader(line))
	for d.PeekKind() != jsontext.KindInvalid {
		isName := nameNext(d)
		if d.PeekKind() == jsontext.KindEndObject || d.PeekKind() == jsontext.KindEndArray || isName {
			d.ReadToken()
			continue
		}
		opens := d.PeekKind() == jsontext.KindBeginObject
		start := valueStart(line, d.InputOffset())
		depth := d.StackDepth()
		if opens || d.PeekKind() == jsontext.KindBeginArray {
			d.ReadToken()
		} else if _, err := d.ReadToken(); err != nil {
			return out
		}
		at := pointerOf(d, depth)
		if strings.HasPrefix(at, "/command/command/") || strings.HasPrefix(at, "/command/submit/command/") {
			continue
		}
		whole := jsontext.NewDecoder(bytes.NewReader(line[start:]))
		value, err := whole.ReadValue()
		if err != nil {
			return out
		}
		null := string(line[:start]) + "null" + string(line[start+int64(len(value)):])
		out = append(out, mutant{[]byte(null), at})
		if opens && !strings.HasSuffix(at, "/env") && at != "/command/command" {
			rest := string(line[start+1:])
			if strings.HasPrefix(rest, "}") {
				out = append(out, mutant{fmt.Appendf(nil, `%s{"zz":1%s`, line[:start], rest), at + "/zz"})
			} else {
				out = append(out, mutant{fmt.Appendf(nil, `%s{"zz":1,%s`, line[:start], rest), at + "/zz"})
			}
		}
	}
	return out
}

// nameNext reports whether the next token is the name of a member.
func nameNext(d *jsontext.Decoder) bool {
	kind, n := d.StackIndex(d.StackDepth())
	return kind == jsontext.KindBeginObject && n%2 == 0
}

// valueStart skips what stands between the last token and the next value.
func valueStart(line []byte, offset int64) int64 {
	for strings.IndexByte(" \t\r\n,:", line[offset]) >= 0 {
		offset++
	}
	return offset
}

// pointerOf is the pointer of the value just begun, whose depth was depth.
func pointerOf(d *jsontext.Decoder, depth int) string {
	p := string(d.StackPointer())
	for strings.Count(p, "/") > depth {
		p = p[:strings.LastIndexByte(p, '/')]
	}
	return p
}

// What a client writes is not sent back to it at length.
func TestLongEcho(t *testing.T) {
	long := strings.Repeat("\u0001", 1<<17)
	name := strconv.Quote(strings.Repeat("é~/", 1<<17))
	quoted, _ := jsontext.AppendQuote(nil, long)
	for _, line := range []string{
		string(quoted) + `:`,
		`{` + name + `:1}`,
		in(`{"op":"sweep",` + name + `:1}`),
		in(`{"op":"start","name":"a","env":{` + name + `:null}}`),
		in(`{"op":"start","name":"a","env":{` + string(quoted) + `:1}}`),
		in(`{"op":` + name + `}`),
		in(`{"op":"submit","instance":"a","content":[{"type":` + name + `}]}`),
		in(`{` + name + `:1,` + name + `:2}`),
		`{"version":` + strings.Repeat("9", 1<<17) + `,"id":"x","command":{"op":"sweep"}}`,
	} {
		got, err := wire.Control.Decode([]byte(line))
		if err == nil {
			t.Fatalf("%.40s… was taken", line)
		}
		if answer := wire.Fail(got.ID, err).Encode(); len(answer) > 8<<10 {
			t.Errorf("%.40s… of %d bytes is answered with %d bytes", line, len(line), len(answer))
		}
	}
}
