package wire

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Response is the answer to one request. Exactly one of Result and Error is
// set. ID is nil when the envelope could not be decoded.
type Response struct {
	Version int     `json:"version"`
	ID      *string `json:"id"`
	Result  any     `json:"result,omitzero"`
	Error   *Error  `json:"error,omitzero"`
}

// Succeed makes the response of a request that was carried out.
func Succeed(id string, result any) Response {
	return Response{Version: Protocol, ID: &id, Result: result}
}

// Fail makes the response of a request that was not. An empty id stands for an
// envelope that could not be decoded.
func Fail(id string, err *Error) Response {
	r := Response{Version: Protocol, Error: err}
	if id != "" {
		r.ID = &id
	}
	return r
}

// Encode writes the response as one line with its newline.
func (r Response) Encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		id := ""
		if r.ID != nil {
			id = *r.ID
		}
		b, _ = json.Marshal(Fail(id, Unknownf(Internal, "the result cannot be encoded: %v", err)))
	}
	return append(b, '\n')
}

// RawResponse is a response as a client reads it.
type RawResponse struct {
	Version int            `json:"version"`
	ID      *string        `json:"id"`
	Result  jsontext.Value `json:"result"`
	Error   *Error         `json:"error"`
}

// DecodeResponse reads one response. Members that this version does not know
// are ignored.
func DecodeResponse(b []byte) (RawResponse, error) {
	var r RawResponse
	err := json.Unmarshal(b, &r)
	return r, err
}
