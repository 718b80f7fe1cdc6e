package wire

import (
	"errors"
	"testing"
)

// What JSON cannot carry is refused with its place, before anything is sent.
func TestEncodeNotText(t *testing.T) {
	for name, tc := range map[string]struct {
		command Command
		pointer string
	}{
		"a variable":        {Start{Name: "a", Env: map[string]string{"GOOD": "é", "BAD": "\xff"}}, "/command/env/BAD"},
		"a variable's name": {Start{Name: "a", Env: map[string]string{"\xff": "x"}}, "/command/env"},
		"an argument":       {Start{Name: "a", Spec: &Spec{Argv: []string{"sh", "a\xc3"}}}, "/command/spec/argv/1"},
		"a directory":       {Start{Name: "a", Spec: &Spec{Argv: []string{"sh"}, Cwd: "/\xed\xa0\x80"}}, "/command/spec/cwd"},
		"a text":            {Submit{Instance: "a", Text: "\x80"}, "/command/text"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Encode(Request{ID: "r", Command: tc.command})
			bad, ok := errors.AsType[*Error](err)
			if !ok || bad.Code != InvalidRequest || bad.Delivery != NotSent || bad.Details.Pointer != tc.pointer {
				t.Fatalf("%v (%+v), want it at %s", err, bad, tc.pointer)
			}
		})
	}
}
