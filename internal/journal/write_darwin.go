//go:build darwin

package journal

import "os"

// datasync makes a file's content durable (F_FULLFSYNC, by the os package).
func datasync(f *os.File) error { return f.Sync() }
