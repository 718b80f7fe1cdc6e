//go:build darwin

package main

import "errors"

// prlimitFileSize would limit how large files a process can write.
func prlimitFileSize(int, uint64) error { return errors.New("macOS has no prlimit") }
