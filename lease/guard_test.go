package lease

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// orphanWorld drives a guard in virtual time.
type orphanWorld struct {
	guard *Guard
	holds *Holds
	start time.Time
	wall  time.Duration // how far the wall clock runs ahead of the monotonic one
}

func newOrphanWorld() *orphanWorld {
	w := &orphanWorld{holds: new(Holds), start: time.Now()}
	w.guard = NewGuard(w.holds, w.tick())
	return w
}

func (w *orphanWorld) tick() Tick {
	return Tick{Mono: time.Since(w.start), Wall: time.Now().Add(w.wall)}
}

// ticks lets the guard check every interval for that long, and returns the
// state after the last check.
func (w *orphanWorld) ticks(d time.Duration, a Answer) State {
	var s State
	for range int(d / w.guard.Interval) {
		time.Sleep(w.guard.Interval)
		if s = w.guard.Check(w.tick(), a, true); s == LeaseDraining {
			return s
		}
	}
	return s
}

// TestOrphanTruthTable (T11): a host leaves only when nothing holds it, its
// graces are over, nobody watches it, and the registry has answered, twice, that
// it is not there.
func TestOrphanTruthTable(t *testing.T) {
	kinds := []Kind{Turn, Listener, Task, Actor, Permission, Update}
	for mask := range 1 << 9 {
		var held []Kind
		for i, k := range kinds {
			if mask&(1<<i) != 0 {
				held = append(held, k)
			}
		}
		young, foreground, unreadable := mask&(1<<6) != 0, mask&(1<<7) != 0, mask&(1<<8) != 0
		name := fmt.Sprintf("holds %v young %v foreground %v unreadable %v", held, young, foreground, unreadable)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOrphanWorld()
				w.guard.Foreground = foreground
				for _, k := range held {
					if _, err := w.holds.Take(k, "x", 0); err != nil {
						t.Fatal(err)
					}
				}
				answer := Absent
				if unreadable {
					answer = Unasked
				}
				age := 10 * time.Minute
				if young {
					age = w.guard.StartGrace - w.guard.Interval
				}
				left := w.ticks(age, answer) == LeaseDraining
				want := len(held) == 0 && !young && !foreground && !unreadable
				if left != want {
					t.Errorf("left: %v, want %v", left, want)
				}
				if _, err := w.holds.Take(Turn, "late", 0); (err != nil) != left {
					t.Errorf("new work after the decision: %v", err)
				}
			})
		})
	}
}

// TestOrphanTakesTwoAnswers: one answer is not enough, and a registration in
// between starts the count anew.
func TestOrphanTakesTwoAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []Answer
		leaves  bool
	}{
		"absent for long":           {[]Answer{Absent, Absent, Absent}, true},
		"superseded counts too":     {[]Answer{Superseded, Absent, Superseded}, true},
		"only once":                 {[]Answer{Absent, Unasked, Unasked}, false},
		"registered in between":     {[]Answer{Absent, Registered, Absent}, false},
		"held in between":           {[]Answer{Absent, Held, Absent}, false},
		"an unknown changes little": {[]Answer{Absent, Unasked, Absent}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOrphanWorld()
				w.ticks(5*time.Minute, Registered)
				var s State
				for _, a := range tc.answers {
					time.Sleep(w.guard.Interval)
					s = w.guard.Check(w.tick(), a, true)
				}
				if left := s == LeaseDraining; left != tc.leaves {
					t.Errorf("state %s, leaves should be %v", s, tc.leaves)
				}
			})
		})
	}
}

// TestOrphanAfterSleep (T26): after the machine slept, or the process was
// stopped, the count begins anew: nobody leaves in the first check.
func TestOrphanAfterSleep(t *testing.T) {
	for name, gap := range map[string]func(w *orphanWorld){
		"the machine slept":       func(w *orphanWorld) { w.wall += 8 * time.Hour; time.Sleep(time.Second) },
		"the process was stopped": func(*orphanWorld) { time.Sleep(8 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOrphanWorld()
				w.ticks(5*time.Minute, Registered)
				if s := w.ticks(w.guard.Interval, Absent); s != LeaseMissing {
					t.Fatalf("state %s", s)
				}
				gap(w)
				if s := w.guard.Check(w.tick(), Absent, true); s == LeaseDraining || s == LeaseLost {
					t.Errorf("state %s at the first look after the gap", s)
				}
				if s := w.ticks(5*time.Minute, Absent); s != LeaseDraining {
					t.Errorf("state %s long after", s)
				}
			})
		})
	}
}

// TestOrphanWithoutFolder: a host whose folder is gone counts as unnamed, but
// only after long.
func TestOrphanWithoutFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newOrphanWorld()
		w.ticks(5*time.Minute, Registered)
		seen := time.Now()
		for {
			time.Sleep(w.guard.Interval)
			if w.guard.Check(w.tick(), Registered, false) == LeaseDraining {
				break
			}
			if time.Since(seen) > time.Hour {
				t.Fatal("it never leaves")
			}
		}
		if d := time.Since(seen); d < w.guard.FolderGrace {
			t.Errorf("it left after %v, before %v", d, w.guard.FolderGrace)
		}
	})
}

// TestGuardModel: whatever happens in whatever order, nobody leaves while held,
// while named, or while the registry is silent; and after the decision no work
// is accepted.
func TestGuardModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, 0)
		w := &orphanWorld{holds: &Holds{clock: func() time.Time { return now }}, start: now}
		tick := func() Tick { return Tick{Mono: now.Sub(w.start), Wall: now} }
		w.guard = NewGuard(w.holds, tick())
		var open []*Hold
		left := false
		answer := Registered
		absentSince := time.Duration(-1)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				h, err := w.holds.Take(rapid.SampledFrom([]Kind{Turn, Task, Actor}).Draw(t, "kind"), "x", 0)
				if (err != nil) != left {
					t.Fatalf("take: %v, left: %v", err, left)
				}
				if err == nil {
					open = append(open, h)
				}
			},
			"release": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				open[i].Release()
				open[i].Release()
				open = append(open[:i], open[i+1:]...)
			},
			"answer": func(t *rapid.T) {
				answer = rapid.SampledFrom([]Answer{Registered, Absent, Superseded, Unasked, Held}).Draw(t, "answer")
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "s")) * time.Second) },
			"check": func(t *rapid.T) {
				if left {
					t.Skip()
				}
				s := w.guard.Check(tick(), answer, true)
				now := now.Sub(w.start)
				switch answer {
				case Registered, Held:
					absentSince = -1
				case Absent, Superseded:
					if absentSince < 0 {
						absentSince = now
					}
				}
				if s != LeaseDraining {
					return
				}
				left = true
				if len(open) > 0 || absentSince < 0 || now-absentSince < w.guard.OrphanGrace || now < w.guard.StartGrace {
					t.Fatalf("left with %d holds, unnamed since %v, at %v", len(open), absentSince, now)
				}
			},
		})
	})
}
