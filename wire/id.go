package wire

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// NewID returns 128 random bits in hex: a request id, an incarnation, a token's
// half.
func NewID() string { return random(16) }

// NewInstanceID returns 64 random bits in hex, short enough for a socket's
// path.
func NewInstanceID() string { return random(8) }

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails, says crypto/rand
	return hex.EncodeToString(b)
}

// Pos is a position in one instance's journal, written EPOCH:SEQ. The epoch
// names the instance and changes with the boot.
type Pos struct {
	Epoch string
	Seq   uint64
}

// String writes the position.
func (p Pos) String() string { return p.Epoch + ":" + strconv.FormatUint(p.Seq, 10) }

// ParsePos reads a position.
func ParsePos(s string) (Pos, *Error) {
	epoch, seq, ok := strings.Cut(s, ":")
	n, err := strconv.ParseUint(seq, 10, 64)
	if !ok || err != nil || epoch == "" {
		return Pos{}, Errorf(InvalidRequest, "position %q is not EPOCH:NUMBER", s)
	}
	return Pos{Epoch: epoch, Seq: n}, nil
}
