package host

import "github.com/castctl/castctl/lease"

// waiting are the acts that wait until nothing holds the instance.
type waiting []func()

// idleThen acts at once, or, with wait, as soon as nothing but the waiting
// client itself holds the instance. The decision is made by the owner, in the
// same step in which the act begins, so no new work slips between.
func (h *Host) idleThen(wait bool, act func()) {
	if !wait {
		act()
		return
	}
	h.leasing.waiting = append(h.leasing.waiting, act)
	h.steps.dirty.Store(true)
}

// whenIdle begins the waiting acts if nothing holds the instance.
func (h *Host) whenIdle() {
	if len(h.leasing.waiting) == 0 || h.busy() {
		return
	}
	acts := h.leasing.waiting
	h.leasing.waiting = nil
	for _, act := range acts {
		act()
	}
}

// busy is the one predicate of idleness, for stop --when-idle, unload, update
// and the orphan's end alike.
func (h *Host) busy() bool { return len(h.holds.List()) > 0 }

// idleReason is a hold's kind, for the log.
func idleReason(r []lease.Reason) string {
	if len(r) == 0 {
		return "idle"
	}
	return string(r[0].Kind)
}
