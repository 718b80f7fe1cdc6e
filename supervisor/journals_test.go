package supervisor

import (
	"testing"

	"pgregory.net/rapid"
)

// TestWaterLevel (9.5): cut to the level, the journals fit, and at a byte more
// they would not; nothing is cut while they fit.
func TestWaterLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.Int64Range(0, 1000)).Draw(t, "sizes")
		max := rapid.Int64Range(0, 5000).Draw(t, "max")
		cut := func(level int64) (sum int64) {
			for _, s := range sizes {
				sum += min(s, level)
			}
			return sum
		}
		level, over := waterLevel(sizes, max)
		if over != (cut(1000) > max) {
			t.Fatalf("over is %v: %d bytes, %d allowed", over, cut(1000), max)
		}
		if over && (cut(level) > max || cut(level+1) <= max) {
			t.Fatalf("level %d makes %d bytes, %d makes %d, allowed are %d", level, cut(level), level+1, cut(level+1), max)
		}
	})
}
