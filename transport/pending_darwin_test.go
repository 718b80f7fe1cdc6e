package transport_test

import "testing"

func pending(t *testing.T, _, _ int) int {
	t.Skip("another process's pipe cannot be looked into here")
	return 0
}
