package wire

import (
	"bytes"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// pair is one member of a JSON object, in the order of the text.
type pair struct {
	name  string
	value jsontext.Value
}

// members splits a JSON object that is known to be well-formed.
func members(v jsontext.Value) []pair {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	out := make([]pair, 0, 8)
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return out
		}
		// The token's text is lost with the next read.
		p := pair{name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return out
		}
		p.value = value.Clone()
		out = append(out, p)
	}
	return out
}

func elements(v jsontext.Value) []jsontext.Value {
	d := jsontext.NewDecoder(bytes.NewReader(v))
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	var out []jsontext.Value
	for d.PeekKind() != jsontext.KindEndArray {
		value, err := d.ReadValue()
		if err != nil {
			return out
		}
		out = append(out, value.Clone())
	}
	return out
}

// check holds a well-formed value against the shape. at is the JSON pointer of
// the value in the request.
func (s *shape) check(v jsontext.Value, at string) *Error {
	got := v.Kind()
	if got == jsontext.KindNull {
		return invalid(at, "%s is null: leave it out instead", place(at))
	}
	if want := s.jsonKind(); got != want && !(want == kindBool && (got == jsontext.KindTrue || got == jsontext.KindFalse)) {
		return invalid(at, "%s must be %s", place(at), s.article())
	}
	switch s.kind {
	case object:
		if s.elem != nil {
			return s.checkMap(v, at)
		}
		return s.checkObject(v, at)
	case array:
		return s.checkArray(v, at)
	case text:
		str, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return invalid(at, "%s is not a JSON string", place(at))
		}
		return s.checkText(string(str), at)
	case integer, number:
		return s.checkNumber(v, at)
	case raw:
		return s.checkRaw(v, at)
	}
	return nil
}

// kindBool stands for both boolean literals.
const kindBool = jsontext.Kind('b')

func (s *shape) jsonKind() jsontext.Kind {
	switch s.kind {
	case object, raw:
		return jsontext.KindBeginObject
	case array:
		return jsontext.KindBeginArray
	case text:
		return jsontext.KindString
	case boolean:
		return kindBool
	default:
		return jsontext.KindNumber
	}
}

func (s *shape) article() string {
	switch s.kind {
	case array:
		return "an array"
	case text:
		return "a string"
	case boolean:
		return "true or false"
	case integer:
		return "an integer"
	case number:
		return "a number"
	default:
		return "an object"
	}
}

func (s *shape) checkObject(v jsontext.Value, at string) *Error {
	given := members(v)
	var have []string
	for _, p := range given {
		m, known := s.member(p.name)
		if !known {
			return invalid(join(at, p.name), "%s is not a member of %s", quote(p.name), place(at))
		}
		if err := m.shape.check(p.value, join(at, p.name)); err != nil {
			return err
		}
		have = append(have, p.name)
	}
	for _, m := range s.fields {
		if !m.optional && !slices.Contains(have, m.name) {
			return invalid(join(at, m.name), "%s is missing", place(join(at, m.name)))
		}
	}
	if s.unions != nil {
		return s.checkVariant(given, have, at)
	}
	return s.checkGroups(given, have, at)
}

// checkFilled refuses an empty string or a zero in a member that is only there
// in some variants: passed on to another process it would be left out, and the
// request would be another one.
func checkFilled(p pair, at string) *Error {
	n, err := strconv.ParseFloat(string(p.value), 64)
	if string(p.value) == `""` || err == nil && n == 0 {
		return invalid(join(at, p.name), "%s is empty", place(join(at, p.name)))
	}
	return nil
}

func (s *shape) checkVariant(given []pair, have []string, at string) *Error {
	var name string
	for _, p := range given {
		if p.name == s.variant {
			b, _ := jsontext.AppendUnquote(nil, p.value)
			name = string(b)
		}
	}
	allowed, known := s.unions[name]
	if !known {
		return invalid(join(at, s.variant), "%s %s is not known", s.variant, quote(name))
	}
	for _, m := range allowed {
		required, optional := strings.CutSuffix(m, "?")
		if !optional && !slices.Contains(have, required) {
			return invalid(join(at, required), "%s is missing", place(join(at, required)))
		}
	}
	for _, p := range given {
		if p.name == s.variant {
			continue
		}
		if !slices.Contains(allowed, p.name) && !slices.Contains(allowed, p.name+"?") {
			return invalid(join(at, p.name), "%s is not a member of a %s", quote(p.name), name)
		}
		if err := checkFilled(p, at); err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) checkGroups(given []pair, have []string, at string) *Error {
	if s.oneOf == nil {
		return nil
	}
	var names []string
	whole := 0
	for _, group := range s.oneOf {
		names = append(names, strings.Join(group, "+"))
		n := 0
		for _, m := range group {
			if slices.Contains(have, m) {
				n++
			}
		}
		if n > 0 && n < len(group) {
			whole = 2 // half a group is as wrong as two
		}
		if n == len(group) {
			whole++
		}
	}
	if whole != 1 {
		return invalid(at, "%s must have exactly one of %s", place(at), strings.Join(names, ", "))
	}
	for _, p := range given {
		grouped := slices.ContainsFunc(s.oneOf, func(group []string) bool { return slices.Contains(group, p.name) })
		if !grouped {
			continue
		}
		if err := checkFilled(p, at); err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) checkMap(v jsontext.Value, at string) *Error {
	for _, p := range members(v) {
		if s.tag.has("env") && (p.name == "" || strings.ContainsAny(p.name, "=\x00")) {
			return invalid(join(at, p.name), "%s is not the name of an environment variable", quote(p.name))
		}
		if err := s.elem.check(p.value, join(at, p.name)); err != nil {
			return err
		}
		if s.tag.has("env") {
			if b, err := jsontext.AppendUnquote(nil, p.value); err == nil && bytes.IndexByte(b, 0) >= 0 {
				return invalid(join(at, p.name), "%s has a NUL byte", place(join(at, p.name)))
			}
		}
	}
	return nil
}

func (s *shape) checkArray(v jsontext.Value, at string) *Error {
	es := elements(v)
	if len(es) < s.tag.minItems {
		return invalid(at, "%s must have at least %d element", place(at), s.tag.minItems)
	}
	for i, e := range es {
		if err := s.elem.check(e, join(at, strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) checkText(v, at string) *Error {
	switch {
	case s.enum != nil && !slices.Contains(s.enum, v):
		return invalid(at, "%s must be one of %s", place(at), strings.Join(s.enum, ", "))
	case s.tag.has("nonblank") && strings.TrimSpace(v) == "":
		return invalid(at, "%s is blank", place(at))
	case s.tag.max != nil && float64(len(v)) > *s.tag.max:
		return invalid(at, "%s has %d bytes, more than %v", place(at), len(v), *s.tag.max)
	case s.tag.has("name") && !ValidName(v):
		return invalid(at, "%s %s", place(at), NameRule)
	case s.tag.has("abs") && !filepath.IsAbs(v):
		return invalid(at, "%s must be an absolute path", place(at))
	case s.tag.has("abs") && strings.IndexByte(v, 0) >= 0:
		return invalid(at, "%s has a NUL byte", place(at))
	case s.goType == timeType && !isTime(v):
		return invalid(at, "%s must be a time such as 2030-12-31T23:59:59Z", place(at))
	}
	return nil
}

// isTime reports whether the decoder will take v for a time (RFC 3339).
func isTime(v string) bool {
	quoted, err := jsontext.AppendQuote(nil, v)
	return err == nil && json.Unmarshal(quoted, new(time.Time)) == nil
}

func (s *shape) checkNumber(v jsontext.Value, at string) *Error {
	if s.kind == integer && bytes.ContainsAny(v, ".eE") {
		return invalid(at, "%s must be an integer", place(at))
	}
	n, err := strconv.ParseFloat(string(v), 64)
	switch {
	case err != nil, s.kind == integer && !s.holds(v):
		return invalid(at, "%s is out of range", place(at))
	case s.tag.min != nil && n < *s.tag.min:
		return invalid(at, "%s must be at least %v", place(at), *s.tag.min)
	case s.tag.max != nil && n > *s.tag.max:
		return invalid(at, "%s must be at most %s", place(at), strconv.FormatFloat(*s.tag.max, 'f', -1, 64))
	}
	return nil
}

// holds reports whether the integer fits the Go type that it goes into.
func (s *shape) holds(v jsontext.Value) bool {
	var err error
	if s.goType.Kind() == reflect.Uint64 {
		_, err = strconv.ParseUint(string(v), 10, 64)
	} else {
		_, err = strconv.ParseInt(string(v), 10, 64)
	}
	return err == nil
}

func (s *shape) checkRaw(v jsontext.Value, at string) *Error {
	if !s.tag.has("command") {
		return nil
	}
	for _, p := range members(v) {
		if p.name == "op" && p.value.Kind() == jsontext.KindString {
			return nil
		}
	}
	return invalid(join(at, "op"), "%s must have a string op", place(at))
}

// invalid makes an error of what the client wrote. It echoes little of it: an
// answer must not be larger than the line that caused it.
func invalid(at, format string, args ...any) *Error {
	for len(at) > maxPointer {
		at = at[:strings.LastIndexByte(at, '/')]
	}
	return Errorf(InvalidRequest, format, args...).At(at)
}

// How much of a request is echoed in an error, in bytes.
const (
	maxPointer = 1024 // a longer pointer ends at a parent
	maxEcho    = 200
)

// clip shortens a text that is echoed.
func clip(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	cut := maxEcho
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func quote(s string) string { return strconv.Quote(clip(s)) }

// join appends a member name to a JSON pointer (RFC 6901).
func join(at, name string) string {
	if strings.ContainsAny(name, "~/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
	}
	return at + "/" + name
}

// place names a position to a person: the pointer with dots.
func place(at string) string {
	if at == "" {
		return "the request"
	}
	return quote(strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", "."))
}
