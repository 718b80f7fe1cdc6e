//go:build darwin

package transport

import "os"

const defaultPipe = 64 << 10

// resizePipe does nothing: macOS sizes pipes itself.
func resizePipe(*os.File, int) {}
