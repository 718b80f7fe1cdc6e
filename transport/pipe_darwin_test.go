package transport

import (
	"os"
	"testing"
)

func pipeSize(t testing.TB, _ *os.File) int {
	t.Skip("macOS sizes pipes itself")
	return 0
}

func pipeHolds(t testing.TB, _ *os.File) int {
	t.Skip("pipes are not looked into here")
	return 0
}
