package wire_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/castctl/castctl/wire"
)

// FuzzDecode: no line crashes the decoder; a refusal tells where and keeps or
// drops the id as a whole; what is taken can be sent on and is then the same.
func FuzzDecode(f *testing.F) {
	for _, p := range programs {
		for _, c := range p.requests {
			line, err := wire.Encode(wire.Request{ID: "x", Command: c})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(line)
		}
	}
	for _, c := range refusals {
		f.Add([]byte(c.line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, ops := range []*wire.Set{wire.Control, wire.HostOps} {
			got, err := ops.Decode(line)
			if err != nil {
				checkRefusal(t, got, err, len(line))
				continue
			}
			checkRoundTrip(t, ops, got)
		}
	})
}

func checkRefusal(t *testing.T, got wire.Request, err *wire.Error, size int) {
	if got.Command != nil || err.Delivery != wire.NotSent || err.Message == "" {
		t.Errorf("refused as %+v with %#v", err, got.Command)
	}
	if got.ID != "" && !wire.ValidID(got.ID) {
		t.Errorf("the id %q is kept", got.ID)
	}
	answer := wire.Fail(got.ID, err).Encode()
	if len(answer) > 8<<10 {
		t.Errorf("%d bytes are answered with %d", size, len(answer))
	}
	back, derr := wire.DecodeResponse(bytes.TrimSuffix(answer, []byte("\n")))
	if derr != nil || back.Error == nil || back.Error.Code != err.Code {
		t.Errorf("the answer %s is read as %+v, %v", answer, back, derr)
	}
}

func checkRoundTrip(t *testing.T, ops *wire.Set, got wire.Request) {
	line, err := wire.Encode(got)
	if err != nil {
		t.Fatalf("%#v cannot be sent on: %v", got, err)
	}
	again, failure := ops.Decode(line)
	if failure != nil {
		t.Fatalf("%s is refused when sent on: %v at %q", line, failure, failure.Details.Pointer)
	}
	// Another program's command is compared by its hash, which follows.
	if diff := cmp.Diff(got, again, cmpopts.IgnoreTypes(jsontext.Value{})); diff != "" {
		t.Errorf("sent on it is another (-first +second):\n%s", diff)
	}
	h1, err1 := wire.Hash(got.Command)
	h2, err2 := wire.Hash(again.Command)
	if h1 != h2 || err1 != nil || err2 != nil {
		t.Errorf("sent on it has another hash: %s %v %v", line, err1, err2)
	}
}
