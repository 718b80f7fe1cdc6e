package lease

import (
	"context"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// WatchFile tells, by a value on the channel, that a file was created,
// replaced, changed or removed. It watches the folder, because a watch on the
// file itself goes deaf when the file is replaced. Changes that come close
// together may be told once. A watch can miss a change; who depends on it looks
// from time to time as well. The removal of the folder itself is told too.
//
// The channel is closed when the context ends or the folder cannot be watched
// any more.
func WatchFile(ctx context.Context, path string) (<-chan struct{}, error) {
	return watch(ctx, filepath.Dir(path), func(name string) bool { return name == path })
}

// WatchDir tells of changes of any file in a folder, as WatchFile does of one.
func WatchDir(ctx context.Context, dir string) (<-chan struct{}, error) {
	return watch(ctx, dir, func(string) bool { return true })
}

func watch(ctx context.Context, dir string, wanted func(name string) bool) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(dir); err != nil {
		w.Close()
		return nil, err
	}
	told := make(chan struct{}, 1)
	go func() {
		defer close(told)
		defer w.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-w.Events:
				if !ok {
					return
				}
				if !wanted(e.Name) && e.Name != dir {
					continue
				}
				select {
				case told <- struct{}{}:
				default:
				}
			case _, ok := <-w.Errors:
				if !ok {
					return
				}
			}
		}
	}()
	return told, nil
}
