package forecast_test

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// oracle says which id the answer to a line must carry, or that it must be
// null, by the standard library's lenient JSON and the rules written out. It
// shares no code with the decoder that it judges.
func oracle(line []byte) (id string, kept bool) {
	if !utf8.Valid(line) || !json.Valid(line) || loneSurrogate(line) || duplicates(line) {
		return "", false
	}
	var envelope map[string]json.RawMessage
	if json.Unmarshal(line, &envelope) != nil || len(envelope) != 3 {
		return "", false
	}
	version, command := envelope["version"], map[string]json.RawMessage(nil)
	var op string
	switch {
	case len(version) == 0 || version[0] != '-' && (version[0] < '0' || version[0] > '9'),
		len(envelope["id"]) == 0 || envelope["id"][0] != '"',
		len(envelope["command"]) == 0 || envelope["command"][0] != '{',
		json.Unmarshal(envelope["id"], &id) != nil,
		json.Unmarshal(envelope["command"], &command) != nil,
		len(command["op"]) == 0 || command["op"][0] != '"',
		json.Unmarshal(command["op"], &op) != nil,
		len(id) > 200, strings.TrimFunc(id, unicode.IsSpace) == "":
		return "", false
	}
	return id, true
}

// loneSurrogate looks for half of a \ud83d\ude00 in valid JSON.
func loneSurrogate(line []byte) bool {
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		i++
		if line[i] != 'u' {
			continue
		}
		first := hex(line, i+1)
		i += 4
		switch {
		case first >= 0xdc00 && first < 0xe000:
			return true
		case first >= 0xd800 && first < 0xdc00:
			if i+6 >= len(line) || line[i+1] != '\\' || line[i+2] != 'u' {
				return true
			}
			if second := hex(line, i+3); second < 0xdc00 || second >= 0xe000 {
				return true
			}
			i += 6
		}
	}
	return false
}

func hex(line []byte, at int) uint64 {
	n, _ := strconv.ParseUint(string(line[at:at+4]), 16, 16)
	return n
}

// duplicates looks for an object of valid JSON with two members of one name.
func duplicates(line []byte) bool {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	type open struct {
		names map[string]bool // nil in an array
		value bool            // the next token is a value
	}
	var stack []open
	for {
		tok, err := d.Token()
		if err != nil {
			return false
		}
		top := len(stack) - 1
		if top >= 0 && stack[top].names != nil && !stack[top].value {
			if name, is := tok.(string); is {
				if stack[top].names[name] {
					return true
				}
				stack[top].names[name], stack[top].value = true, true
				continue
			}
		}
		if top >= 0 {
			stack[top].value = false
		}
		switch tok {
		case json.Delim('{'):
			stack = append(stack, open{names: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, open{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
		}
	}
}
