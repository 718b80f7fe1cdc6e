package wire_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/castctl/castctl/wire"
)

// compile compiles one definition of a program's schema, and with it checks the
// schema against the meta-schema that it names.
func compile(t *testing.T, schema []byte, def string) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	if got := doc.(map[string]any)["$schema"]; got != "https://json-schema.org/draft/2020-12/schema" {
		t.Fatalf("$schema is %v", got)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json#" + def)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validate(t *testing.T, s *jsonschema.Schema, line []byte) error {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s.Validate(v)
}

func TestGoldenSchema(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			schema := p.ops.Schema(p.name)
			golden(t, p.name+".schema.json", schema)
			if again := p.ops.Schema(p.name); !bytes.Equal(schema, again) {
				t.Error("the schema is another each time")
			}
			request, any := compile(t, schema, "/$defs/request"), compile(t, schema, "")
			for _, line := range p.encoded(t) {
				if err := validate(t, request, line); err != nil {
					t.Errorf("%s\n%v", line, err)
				}
				if err := validate(t, any, line); err != nil {
					t.Errorf("%s\n%v", line, err)
				}
			}
		})
	}
}

// Every golden request, of whatever program, validates against the schema that
// lies beside it.
func TestGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("../testdata/wire/*.jsonl")
	if err != nil || len(files) < len(programs) {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		schema, err := os.ReadFile(strings.TrimSuffix(file, ".jsonl") + ".schema.json")
		if err != nil {
			t.Error(err)
			continue
		}
		request := compile(t, schema, "/$defs/request")
		lines, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(lines) {
			if err := validate(t, request, line); err != nil {
				t.Errorf("%s: %s%v", file, line, err)
			}
		}
	}
}

// Where the schema is content with a request that the decoder refuses: the
// runtime validation that the schema cannot say. All other verdicts agree.
var runtimeOnly = []string{
	"an id of 201 bytes",                 // the schema counts characters
	"a blank id",                         // what is white space depends on the engine of the pattern
	"a blank instance",                   //
	"an integer beyond 64 bits",          //
	"an unsigned integer beyond 64 bits", //
}

// overlooked are refusals of what a validator never sees, because it is given a
// parsed value.
var overlooked = []string{"duplicate", "UTF-8", "surrogate", "overlong"}

func TestSchemaAgreesWithDecoder(t *testing.T) {
	schema := compile(t, wire.Control.Schema("control"), "/$defs/request")
	for _, c := range refusals {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(c.line))
		if err != nil || slices.ContainsFunc(overlooked, func(what string) bool { return strings.Contains(c.name, what) }) {
			continue
		}
		taken := schema.Validate(v) == nil
		if want := slices.Contains(runtimeOnly, c.name); taken != want {
			t.Errorf("%s: the schema takes it: %v, want %v: %s", c.name, taken, want, c.line)
		}
	}
	for _, p := range programs {
		schema := compile(t, p.ops.Schema(p.name), "/$defs/request")
		for _, line := range p.encoded(t) {
			for _, m := range mutants(line) {
				if validate(t, schema, m.line) == nil {
					t.Errorf("the schema takes %s", m.line)
				}
			}
		}
	}
}

// Every result validates, as it is and with members that only a later version
// knows, at every depth: results are additive.
func TestResultsAreOpen(t *testing.T) {
	for _, p := range programs {
		schema := p.ops.Schema(p.name)
		response := compile(t, schema, "/$defs/response")
		for _, op := range p.ops.Operations() {
			t.Run(p.name+"/"+op.Command.Op(), func(t *testing.T) {
				result := reflect.New(reflect.TypeOf(op.Result)).Elem()
				fill(result)
				line := wire.Succeed("x", result.Interface()).Encode()
				if err := validate(t, response, line); err != nil {
					t.Errorf("%s%v", line, err)
				}
				if grown := grow(line); validate(t, response, grown) != nil {
					t.Errorf("%s\n%v", grown, validate(t, response, grown))
				}
			})
		}
		failure := wire.Fail("x", wire.Errorf(wire.Conflict, "no").At("/command").HeldBy("ann")).Encode()
		for _, line := range [][]byte{failure, grow(failure), wire.Fail("", wire.Errorf(wire.InvalidRequest, "no")).Encode()} {
			if err := validate(t, response, line); err != nil {
				t.Errorf("%s\n%v", line, err)
			}
		}
		for _, bad := range []string{
			`{"version":1,"id":"x"}`, `{"version":1,"result":{}}`, `{"version":2,"id":"x","error":{"code":"conflict","message":"","delivery":"unknown","details":{}}}`,
			`{"version":1,"id":"x","error":{"code":"conflict","message":"","details":{}}}`, `{"version":1,"id":"","error":{"code":"conflict","message":"","delivery":"unknown","details":{}}}`,
			`{"version":1,"id":"x","result":{},"error":{"code":"conflict","message":"","delivery":"unknown","details":{}}}`,
		} {
			if validate(t, response, []byte(bad)) == nil {
				t.Errorf("%s: the schema takes the response %s", p.name, bad)
			}
		}
	}
}

// Nothing that a response's schema refers to is closed, and everything that a
// request's does is.
func TestSchemaOpenAndClosed(t *testing.T) {
	for _, p := range programs {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(p.ops.Schema(p.name)))
		if err != nil {
			t.Fatal(err)
		}
		defs := doc.(map[string]any)["$defs"].(map[string]any)
		walk(defs, "response", map[string]bool{}, func(def string, o map[string]any) {
			if o["additionalProperties"] == false {
				t.Errorf("%s: %s is part of a response and closed", p.name, def)
			}
		})
		walk(defs, "request", map[string]bool{}, func(def string, o map[string]any) {
			if o["type"] == "object" && o["properties"] != nil && o["additionalProperties"] != false && !reflect.DeepEqual(o["required"], []any{"op"}) {
				t.Errorf("%s: %s is part of a request and open: %v", p.name, def, o)
			}
		})
	}
}

// walk visits the objects that the named definition reaches.
func walk(defs map[string]any, def string, seen map[string]bool, visit func(def string, o map[string]any)) {
	if seen[def] {
		return
	}
	seen[def] = true
	var down func(v any)
	down = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			visit(def, v)
			if to, ok := v["$ref"].(string); ok {
				walk(defs, strings.TrimPrefix(to, "#/$defs/"), seen, visit)
			}
			for _, inner := range v {
				down(inner)
			}
		case []any:
			for _, inner := range v {
				down(inner)
			}
		}
	}
	down(defs[def])
}

// fill gives a result a value at every member.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)))
		return
	case jsontext.Value:
		v.Set(reflect.ValueOf(jsontext.Value(`{"any":[null]}`)))
		return
	case wire.Block:
		v.Set(reflect.ValueOf(wire.Block{Type: "text", Text: "x"}))
		return
	case wire.Target:
		v.Set(reflect.ValueOf(wire.Target{PID: 2, StartTicks: 3}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
		if e, ok := v.Interface().(interface{ Enum() []string }); ok {
			v.SetString(e.Enum()[0])
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(1 << 21) // above every minimum, below every maximum but that of the short waits
	case reflect.Uint64:
		v.SetUint(1<<64 - 1)
	case reflect.Float64:
		v.SetFloat(0.25)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	default:
		panic(fmt.Sprintf("no example of %v", v.Type()))
	}
	if s, ok := v.Interface().(wire.Spec); ok {
		s.Cwd, s.EnvFile, s.StopTimeoutMS = "/", "/e", 1
		s.Restart.BackoffMS = wire.Ptr(int64(1))
		v.Set(reflect.ValueOf(s))
	}
}

// grow adds a member to every object of a line.
func grow(line []byte) []byte {
	var out bytes.Buffer
	e := jsontext.NewEncoder(&out)
	d := jsontext.NewDecoder(bytes.NewReader(line))
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return out.Bytes()
		}
		e.WriteToken(tok)
		if tok.Kind() == jsontext.KindBeginObject {
			e.WriteToken(jsontext.String("of_a_later_version"))
			e.WriteToken(jsontext.Int(2))
		}
	}
}
