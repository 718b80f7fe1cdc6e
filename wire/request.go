package wire

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Protocol is the version of the control protocol that this build speaks.
const Protocol = 1

// Limits of the control protocol.
const (
	MaxLine    = 1 << 20  // bytes of a request line with its newline
	MaxBody    = 32 << 20 // bytes of a request over HTTP and on host sockets
	MaxID      = 200      // bytes of a request id
	MaxPending = 64       // requests in flight on one connection
)

// Command is the typed content of a request; its dynamic type says which.
type Command interface{ Op() string }

// Request is a decoded request.
type Request struct {
	ID      string
	Command Command
}

// Operation is one entry of a [Set].
type Operation struct {
	Command  Command // a zero value of the command's struct type
	Result   any     // a zero value of the result's struct type
	Mutation bool
}

// Set is the operations that a program knows.
type Set struct{ ops []Operation } // few, and every process makes one: no map

// NewSet makes a set. Two commands with one name are a programming error.
func NewSet(ops ...Operation) *Set {
	s := &Set{ops: ops}
	for i, op := range ops {
		if s.find(op.Command.Op()) != i {
			panic("wire: two commands are named " + op.Command.Op())
		}
	}
	return s
}

// find is the place of the named operation, or -1.
func (s *Set) find(name string) int {
	return slices.IndexFunc(s.ops, func(op Operation) bool { return op.Command.Op() == name })
}

// Names lists the operations in their order.
func (s *Set) Names() []string {
	names := make([]string, len(s.ops))
	for i, op := range s.ops {
		names[i] = op.Command.Op()
	}
	return names
}

// Mutation reports whether the named operation changes anything.
func (s *Set) Mutation(op string) bool {
	i := s.find(op)
	return i >= 0 && s.ops[i].Mutation
}

// Decode reads one request. When it fails, the request's ID is set if the
// envelope could be decoded, and the response must carry it; otherwise the
// response's id is null.
func (s *Set) Decode(b []byte) (Request, *Error) {
	id, name, command, err := decodeEnvelope(b)
	if err != nil {
		return Request{ID: id}, err
	}
	i := s.find(name)
	if i < 0 {
		err := Errorf(UnsupportedMethod, "the operation %q is not known here", clip(name)).At("/command/op")
		err.Details.Method = clip(name)
		return Request{ID: id}, err
	}
	value := reflect.New(reflect.TypeOf(s.ops[i].Command))
	if err := s.decodeCommand(command, value); err != nil {
		err.Details.Method = name
		return Request{ID: id}, err
	}
	return Request{ID: id, Command: value.Elem().Interface().(Command)}, nil
}

// decodeCommand checks the command without its op, then unmarshals it.
func (s *Set) decodeCommand(command jsontext.Value, into reflect.Value) *Error {
	var rest bytes.Buffer
	rest.WriteByte('{')
	for _, p := range members(command) {
		if p.name == "op" {
			continue
		}
		if rest.Len() > 1 {
			rest.WriteByte(',')
		}
		name, _ := jsontext.AppendQuote(nil, p.name)
		rest.Write(name)
		rest.WriteByte(':')
		rest.Write(p.value)
	}
	rest.WriteByte('}')
	if err := shapeOf(into.Type().Elem()).check(rest.Bytes(), "/command"); err != nil {
		return err
	}
	if err := json.Unmarshal(rest.Bytes(), into.Interface()); err != nil {
		at := "/command"
		if se, ok := errors.AsType[*json.SemanticError](err); ok {
			at += string(se.JSONPointer)
		}
		return invalid(at, "%s does not fit: %s", place(at), clip(err.Error()))
	}
	return nil
}

// decodeEnvelope reads the outer object: exactly a number version, a valid id
// and an object command with a string op.
func decodeEnvelope(b []byte) (id, op string, command jsontext.Value, err *Error) {
	v := jsontext.Value(b)
	if err := syntax(v); err != nil {
		return "", "", nil, err
	}
	if v.Kind() != jsontext.KindBeginObject {
		return "", "", nil, invalid("", "the request must be an object")
	}
	var version jsontext.Value
	for _, p := range members(v) {
		switch {
		case p.name == "version" && p.value.Kind() == jsontext.KindNumber:
			version = p.value
		case p.name == "id" && p.value.Kind() == jsontext.KindString:
			s, _ := jsontext.AppendUnquote(nil, p.value)
			id = string(s)
			if !ValidID(id) {
				return "", "", nil, invalid("/id", "the id must be 1 to %d bytes and not blank", MaxID)
			}
		case p.name == "command" && p.value.Kind() == jsontext.KindBeginObject:
			command = p.value
		default:
			return "", "", nil, invalid(join("", p.name), "the request must be exactly a number version, a string id and an object command")
		}
	}
	switch {
	case version == nil:
		return "", "", nil, invalid("/version", "version is missing")
	case id == "":
		return "", "", nil, invalid("/id", "id is missing")
	case command == nil:
		return "", "", nil, invalid("/command", "command is missing")
	}
	op, ok := opOf(command)
	if !ok {
		return "", "", nil, invalid("/command/op", "the command needs a string op")
	}
	var n float64
	if json.Unmarshal(version, &n) != nil || n != Protocol {
		return id, "", nil, Errorf(UnsupportedVersion, "version %s is not spoken here, only %d", clip(string(version)), Protocol).At("/version")
	}
	return id, op, command, nil
}

// syntax checks that a text is one JSON value, without duplicate names or
// invalid UTF-8 at any depth.
func syntax(v jsontext.Value) *Error {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadValue(); err != nil {
		return syntaxError(err)
	}
	// Garbage after the value is an error of the reader, so only a clean end
	// proves that there is none.
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return invalid("", "something follows the JSON value")
	}
	return nil
}

func syntaxError(err error) *Error {
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return invalid(string(se.JSONPointer), "not JSON: %s", clip(se.Err.Error()))
	}
	return invalid("", "not JSON: %s", clip(err.Error()))
}

// opOf finds the command's op. The empty string is one too: an unknown one.
func opOf(command jsontext.Value) (op string, ok bool) {
	for _, p := range members(command) {
		if p.name == "op" && p.value.Kind() == jsontext.KindString {
			b, _ := jsontext.AppendUnquote(nil, p.value)
			return string(b), true
		}
	}
	return "", false
}

// ValidID reports whether a request id is fit: not blank, at most [MaxID]
// bytes of UTF-8.
func ValidID(id string) bool {
	return len(id) <= MaxID && strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsSpace(r) })
}

// Encode writes a request as one line without its newline. It fails with an
// [*Error] if a string of the command is not UTF-8, which JSON cannot carry: a
// variable of the environment, an argument, a path.
func Encode(r Request) ([]byte, error) {
	command, err := encodeCommand(r.Command)
	if se, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at := "/command" + string(se.JSONPointer)
		return nil, invalid(at, "%s is not UTF-8 and cannot be passed on: leave it out or write it otherwise", place(string(se.JSONPointer)))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(struct {
		Version int            `json:"version"`
		ID      string         `json:"id"`
		Command jsontext.Value `json:"command"`
	}{Protocol, r.ID, command})
}

func encodeCommand(c Command) (jsontext.Value, error) {
	b, err := json.Marshal(c, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	op, err := json.Marshal(c.Op())
	if err != nil {
		return nil, err
	}
	out := append([]byte(`{"op":`), op...)
	if !bytes.Equal(b, []byte("{}")) {
		out = append(out, ',')
	}
	return append(out, b[1:]...), nil
}

// Hash identifies the decoded content of a command: white space, the order of
// members, the spelling of a character or number, and whether an optional false
// or zero is written out make no difference. An empty object or list is not the
// same as none.
func Hash(c Command) ([sha256.Size]byte, error) {
	v, err := encodeCommand(c)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	// Whole numbers keep their digits: as doubles, large ones would collide.
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("canonical form of %s: %w", c.Op(), err)
	}
	return sha256.Sum256(v), nil
}
