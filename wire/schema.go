package wire

import (
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schema returns the JSON Schema (draft 2020-12) of the set's requests and
// responses. It describes structure; byte limits and relations between members
// that it cannot say are checked at run time as well. Requests are closed: a
// member that is not named is refused. Responses are open: later versions add
// members, and a client must ignore those that it does not know.
func (s *Set) Schema(title string) []byte {
	g := schemaGen{defs: map[string]any{}}
	answers := schemaGen{defs: g.defs, open: true}
	var commands, results []any
	for _, op := range s.ops {
		name := op.Command.Op()
		g.defs["command."+name] = g.command(op.Command)
		commands = append(commands, ref("command."+name))
		result := answers.of(shapeOf(reflect.TypeOf(op.Result)))
		if !slices.ContainsFunc(results, func(r any) bool { return reflect.DeepEqual(r, result) }) {
			results = append(results, result)
		}
	}
	g.defs["request"] = strictObject(map[string]any{
		"version": map[string]any{"const": Protocol},
		"id":      idSchema,
		"command": map[string]any{"oneOf": commands},
	}, "version", "id", "command")
	g.defs["response"] = map[string]any{
		"type": "object",
		"properties": map[string]any{
			"version": map[string]any{"const": Protocol},
			"id":      map[string]any{"anyOf": []any{idSchema, map[string]any{"type": "null"}}},
			"result":  map[string]any{"anyOf": results},
			"error":   answers.of(shapeOf(reflect.TypeFor[Error]())),
		},
		"required": []string{"version", "id"},
		"oneOf":    []any{map[string]any{"required": []string{"result"}}, map[string]any{"required": []string{"error"}}},
	}
	doc := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   title,
		"oneOf":   []any{ref("request"), ref("response")},
		"$defs":   g.defs,
	}
	b, err := json.Marshal(doc, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		panic("wire: schema: " + err.Error()) // only maps and strings go in
	}
	return append(b, '\n')
}

var idSchema = map[string]any{"type": "string", "minLength": 1, "maxLength": MaxID, "pattern": `\S`}

func ref(def string) any { return map[string]any{"$ref": "#/$defs/" + def} }

func strictObject(properties map[string]any, required ...string) map[string]any {
	if required == nil {
		required = []string{}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// schemaGen collects the definitions of named types. A type that stands in
// requests and in responses has two.
type schemaGen struct {
	defs map[string]any
	open bool // describes responses
}

// structure is the schema of an object with known members.
func (g schemaGen) structure(properties map[string]any, required ...string) map[string]any {
	s := strictObject(properties, required...)
	if g.open {
		delete(s, "additionalProperties")
	}
	return s
}

// filled describes a member that must not be empty; see checkFilled.
var filled = map[string]any{"not": map[string]any{"enum": []any{"", 0}}}

func (g schemaGen) command(c Command) any {
	s := g.object(shapeOf(reflect.TypeOf(c)))
	s["properties"].(map[string]any)["op"] = map[string]any{"const": c.Op()}
	s["required"] = append([]string{"op"}, s["required"].([]string)...)
	return s
}

// of returns the schema of a shape: a reference for structs, so that each is
// described once.
func (g schemaGen) of(s *shape) any {
	if s.kind == object && s.elem == nil {
		name := s.goType.Name()
		if name == "" {
			return g.object(s)
		}
		name = strings.ToLower(name[:1]) + name[1:]
		if g.open {
			name = "result." + name
		}
		if _, done := g.defs[name]; !done {
			g.defs[name] = true // stands in for itself while it is described
			g.defs[name] = g.object(s)
		}
		return ref(name)
	}
	switch s.kind {
	case object:
		out := map[string]any{"type": "object", "additionalProperties": g.of(s.elem)}
		if s.tag.has("env") {
			out["propertyNames"] = map[string]any{"pattern": `^[^=\x00]+$`}
			out["additionalProperties"] = map[string]any{"type": "string", "pattern": `^[^\x00]*$`}
		}
		return out
	case array:
		out := map[string]any{"type": "array", "items": g.of(s.elem)}
		if s.tag.minItems > 0 {
			out["minItems"] = s.tag.minItems
		}
		return out
	case raw:
		out := map[string]any{"type": "object"}
		if s.tag.has("command") {
			out["properties"] = map[string]any{"op": map[string]any{"type": "string"}}
			out["required"] = []string{"op"}
		}
		return out
	case anything:
		return true
	case text:
		return g.text(s)
	}
	out := map[string]any{"type": string(s.kind)}
	if s.tag.min != nil {
		out["minimum"] = *s.tag.min
	}
	if s.tag.max != nil {
		out["maximum"] = *s.tag.max
	}
	return out
}

func (g schemaGen) text(s *shape) any {
	out := map[string]any{"type": "string"}
	switch {
	case s.enum != nil:
		out["enum"] = s.enum
	case s.goType == timeType:
		out["format"] = "date-time"
	case s.tag.has("name"):
		out["pattern"] = nameForm
	case s.tag.has("abs"):
		out["pattern"] = `^/[^\x00]*$`
	case s.tag.has("nonblank"):
		out["pattern"] = `\S`
	}
	if s.tag.max != nil {
		out["maxLength"] = *s.tag.max // characters here, bytes at run time
	}
	return out
}

func (g schemaGen) object(s *shape) map[string]any {
	properties := map[string]any{}
	required := []string{}
	for _, m := range s.fields {
		p := g.of(m.shape)
		if m.nullable {
			p = map[string]any{"anyOf": []any{p, map[string]any{"type": "null"}}}
		}
		properties[m.name] = p
		if !m.optional {
			required = append(required, m.name)
		}
	}
	out := g.structure(properties, required...)
	if s.oneOf != nil {
		out["oneOf"] = g.groups(s.oneOf)
	}
	if s.unions != nil {
		out["oneOf"] = g.variants(s)
	}
	return out
}

// groups says: exactly one of the groups, whole, and nothing of the rest.
func (g schemaGen) groups(groups [][]string) []any {
	var out []any
	for i, group := range groups {
		properties := map[string]any{}
		for _, m := range group {
			properties[m] = filled
		}
		var others []any
		for j, other := range groups {
			for _, m := range other {
				if j != i {
					others = append(others, map[string]any{"required": []string{m}})
				}
			}
		}
		one := map[string]any{"required": group, "not": map[string]any{"anyOf": others}}
		if !g.open {
			one["properties"] = properties
		}
		out = append(out, one)
	}
	return out
}

func (g schemaGen) variants(s *shape) []any {
	var names []string
	for name := range s.unions {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []any
	for _, name := range names {
		properties := map[string]any{s.variant: map[string]any{"const": name}}
		required := []string{s.variant}
		for _, m := range s.unions[name] {
			bare, optional := strings.CutSuffix(m, "?")
			properties[bare] = true
			if !g.open {
				properties[bare] = filled
			}
			if !optional {
				required = append(required, bare)
			}
		}
		out = append(out, g.structure(properties, required...))
	}
	return out
}
