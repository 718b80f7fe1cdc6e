//go:build darwin

package forecast

import "os"

// anonymous makes a file and takes its name away at once: macOS has none that
// never had a name.
func anonymous() (*os.File, error) {
	f, err := os.CreateTemp("", "supercast-ledger-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
