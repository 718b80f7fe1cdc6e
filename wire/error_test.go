package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/castctl/castctl/wire"
)

// A code matches its sentinel however it travelled, and no other.
func TestErrorsMatchByCode(t *testing.T) {
	sentinels := map[wire.Code]error{
		wire.NotFound: wire.ErrNotFound, wire.Conflict: wire.ErrConflict, wire.InvalidState: wire.ErrInvalidState,
		wire.Unavailable: wire.ErrUnavailable, wire.Unauthorized: wire.ErrUnauthorized,
	}
	for _, name := range wire.Code("").Enum() {
		code := wire.Code(name)
		made := wire.Unknownf(code, "it is so").At("/command").HeldBy("ann")
		answer, err := wire.DecodeResponse(wire.Fail("x", made).Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(made, answer.Error); diff != "" {
			t.Errorf("%s arrives as another (-sent +received):\n%s", code, diff)
		}
		wrapped := fmt.Errorf("start fix: %w", answer.Error)
		for other, sentinel := range sentinels {
			if got, want := errors.Is(wrapped, sentinel), other == code; got != want {
				t.Errorf("errors.Is(%s, %s) = %v", code, other, got)
			}
		}
		if !errors.Is(wrapped, &wire.Error{Code: code}) {
			t.Errorf("%s does not match itself", code)
		}
	}
	if errors.Is(errors.New("not_found"), wire.ErrNotFound) {
		t.Error("an error of another type matches")
	}
}

func TestAsError(t *testing.T) {
	refused := wire.Errorf(wire.Conflict, "no")
	if got := wire.AsError(fmt.Errorf("a: %w", refused)); got != refused {
		t.Errorf("the wrapped error is %v", got)
	}
	got := wire.AsError(errors.New("disk on fire"))
	if got.Code != wire.Internal || got.Delivery != wire.DeliveryUnknown || got.Message != "disk on fire" {
		t.Errorf("a foreign error is %+v", got)
	}
}

// An answer is one line with exactly a result or an error, and its id or null.
func TestResponses(t *testing.T) {
	type result struct {
		Text string `json:"text"`
		None []int  `json:"none"`
	}
	for _, c := range []struct {
		name string
		r    wire.Response
		want string
	}{
		{"a result", wire.Succeed("x", result{Text: "\u2028\n"}), "{\"version\":1,\"id\":\"x\",\"result\":{\"text\":\"\u2028\\n\",\"none\":[]}}\n"},
		{"a result with nothing in it", wire.Succeed("x", struct{}{}), `{"version":1,"id":"x","result":{}}` + "\n"},
		{"an error", wire.Fail("x", wire.Errorf(wire.NotFound, "no")), `{"version":1,"id":"x","error":{"code":"not_found","message":"no","delivery":"not_sent","details":{}}}` + "\n"},
		{"an error without an id", wire.Fail("", wire.Errorf(wire.InvalidRequest, "no").At("/id")), `{"version":1,"id":null,"error":{"code":"invalid_request","message":"no","delivery":"not_sent","details":{"pointer":"/id"}}}` + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := string(c.r.Encode())
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Count(got, "\n") != 1 || !json.Valid([]byte(got)) {
				t.Errorf("%q is not one line of JSON", got)
			}
		})
	}
}

// A result that cannot be written is an answer all the same: the change may
// have happened.
func TestResponseThatCannotBeWritten(t *testing.T) {
	got, err := wire.DecodeResponse(wire.Succeed("x", func() {}).Encode())
	if err != nil || got.ID == nil || *got.ID != "x" || got.Error == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.Error.Code != wire.Internal || got.Error.Delivery != wire.DeliveryUnknown {
		t.Errorf("%+v", got.Error)
	}
}

// A client reads answers of later versions.
func TestResponsesAreAdditive(t *testing.T) {
	got, err := wire.DecodeResponse([]byte(`{"version":1,"id":"x","trace":{},"error":{"code":"overheated","message":"m","delivery":"unknown","details":{"zone":4},"retry":false}}`))
	if err != nil || got.Error == nil || got.Error.Code != "overheated" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPositions(t *testing.T) {
	for _, c := range []struct {
		in string
		ok bool
	}{
		{"e:0", true},
		{"e:18446744073709551615", true},
		{"e:18446744073709551616", false},
		{"e:", false},
		{":1", false},
		{"e", false},
		{"", false},
		{"e:-1", false},
		{"e:1:2", false},
		{"e:+1", false},
		{"e: 1", false},
		{"e:1_0", false},
	} {
		pos, err := wire.ParsePos(c.in)
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", c.in, err)
		}
		if err == nil && pos.String() != c.in {
			t.Errorf("%q is written %q", c.in, pos)
		}
	}
}
