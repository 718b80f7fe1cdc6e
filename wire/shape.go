package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A shape is what a Go type looks like as JSON. It is read off the type once;
// the decoder checks values against it, and the schema is printed from it.
//
// Struct members are required unless their json tag says omitzero or omitempty.
// A wire tag adds rules:
//
//	wire:"min=0,max=600000"  bounds of a number, or of a string's bytes
//	wire:"nonblank"          a string with a character that is not white space
//	wire:"name"              an instance name
//	wire:"abs"               an absolute path
//	wire:"env"               names and values fit for an environment
//	wire:"minitems=1"        length of an array
//	wire:"command"           a JSON object with a string member op
//
// A struct type may say which of its optional members go together, by a method
// OneOf() [][]string: exactly one of the groups must be there, whole.
type shape struct {
	kind    kind
	fields  []member
	oneOf   [][]string
	elem    *shape // of an array or a map
	enum    []string
	tag     rules
	goType  reflect.Type
	variant string              // discriminating member of a union
	unions  map[string][]string // variant → the members that it has
}

type kind string

const (
	object   kind = "object"
	array    kind = "array"
	text     kind = "string"
	integer  kind = "integer"
	number   kind = "number"
	boolean  kind = "boolean"
	raw      kind = "raw" // a JSON object of another program's
	anything kind = "any" // results only
)

type member struct {
	name     string
	optional bool
	nullable bool // results only: a pointer that is always present
	shape    *shape
}

type rules struct {
	min, max *float64
	minItems int
	flags    []string
}

func (r rules) has(flag string) bool { return slices.Contains(r.flags, flag) }

// enumerated is implemented by string types with a fixed set of values.
type enumerated interface{ Enum() []string }

// grouped is implemented by structs whose optional members exclude each other.
type grouped interface{ OneOf() [][]string }

// union is implemented by flat structs that stand for one of several shapes,
// told apart by the member that Discriminator names.
type union interface {
	Discriminator() string
	Variants() map[string][]string
}

var shapes sync.Map // reflect.Type → *shape

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := buildShape(t)
	shapes.Store(t, s)
	return s
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[jsontext.Value]()
)

func buildShape(t reflect.Type) *shape {
	switch {
	case t == timeType:
		return &shape{kind: text, goType: t}
	case t == rawType:
		return &shape{kind: raw, goType: t}
	case t.Kind() == reflect.Pointer:
		return shapeOf(t.Elem())
	}
	s := &shape{goType: t}
	switch t.Kind() {
	case reflect.String:
		s.kind = text
		if e, ok := reflect.Zero(t).Interface().(enumerated); ok {
			s.enum = e.Enum()
		}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		s.kind = integer
		if t.Kind() == reflect.Uint64 {
			s.tag.min = new(float64)
		}
	case reflect.Float64:
		s.kind = number
	case reflect.Bool:
		s.kind = boolean
	case reflect.Slice:
		s.kind, s.elem = array, shapeOf(t.Elem())
	case reflect.Map:
		s.kind, s.elem = object, shapeOf(t.Elem())
	case reflect.Struct:
		s.ofStruct(t)
	case reflect.Interface:
		s.kind = anything
	default:
		panic(fmt.Sprintf("wire: no JSON shape for %v", t))
	}
	return s
}

func (s *shape) ofStruct(t reflect.Type) {
	s.kind = object
	zero := reflect.Zero(t).Interface()
	if g, ok := zero.(grouped); ok {
		s.oneOf = g.OneOf()
	}
	if u, ok := zero.(union); ok {
		s.variant, s.unions = u.Discriminator(), u.Variants()
	}
	for f := range fields(t) {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		optional := strings.Contains(opts, "omit")
		m := member{name: name, optional: optional, nullable: f.Type.Kind() == reflect.Pointer && !optional, shape: shapeOf(f.Type)}
		if tag := f.Tag.Get("wire"); tag != "" {
			ruled := *m.shape
			ruled.tag = parseRules(tag)
			m.shape = &ruled
		}
		s.fields = append(s.fields, m)
	}
}

// fields yields the exported fields of a struct, those of embedded structs in
// place of the embedding.
func fields(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous && f.Tag.Get("json") == "" {
				for inner := range fields(f.Type) {
					if !yield(inner) {
						return
					}
				}
				continue
			}
			if f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

func parseRules(tag string) rules {
	var r rules
	for _, rule := range strings.Split(tag, ",") {
		key, value, _ := strings.Cut(rule, "=")
		n, _ := strconv.ParseFloat(value, 64)
		switch key {
		case "min":
			r.min = &n
		case "max":
			r.max = &n
		case "minitems":
			r.minItems = int(n)
		default:
			r.flags = append(r.flags, key)
		}
	}
	return r
}

func (s *shape) member(name string) (member, bool) {
	for _, m := range s.fields {
		if m.name == name {
			return m, true
		}
	}
	return member{}, false
}
