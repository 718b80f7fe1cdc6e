package supervisor

import (
	"context"
	"sync"
)

// fileWork runs small work on instance folders beside the owner, in order for
// each instance: the last spec written is the newest, and nothing is written
// into a folder after its removal.
type fileWork struct {
	mu   sync.Mutex // guards busy
	busy map[string][]func()
	wg   sync.WaitGroup
}

// do queues work on an instance's folder.
func (w *fileWork) do(id string, work func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == nil {
		w.busy = map[string][]func(){}
	}
	if queue, busy := w.busy[id]; busy {
		w.busy[id] = append(queue, work)
		return
	}
	w.busy[id] = nil
	w.wg.Go(func() { w.run(id, work) })
}

func (w *fileWork) run(id string, work func()) {
	for {
		work()
		w.mu.Lock()
		queue := w.busy[id]
		if len(queue) == 0 {
			delete(w.busy, id)
			w.mu.Unlock()
			return
		}
		work, w.busy[id] = queue[0], queue[1:]
		w.mu.Unlock()
	}
}

// now runs work on an instance's folder in its turn, and waits for it, or until
// the context ends; the work is then still done in its turn. It must not be
// called by the owner.
func (w *fileWork) now(ctx context.Context, id string, work func() error) error {
	done := make(chan error, 1)
	w.do(id, func() { done <- work() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait returns when all work is done.
func (w *fileWork) wait() { w.wg.Wait() }
