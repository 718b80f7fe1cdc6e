package registry

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/castctl/castctl/wire"
)

// sideFile stands beside the database and knows what an empty or foreign
// database file cannot tell: which registry belongs here, and whether it was
// closed in order.
type sideFile struct {
	UUID  string `json:"uuid"`
	Clean bool   `json:"clean"`
}

func sidePath(path string) string { return path + ".id" }

func readSide(path string) sideFile {
	var s sideFile
	b, err := os.ReadFile(sidePath(path))
	if err != nil || decode(b, &s) != nil {
		return sideFile{}
	}
	return s
}

func writeSide(path string, s sideFile) error {
	b, err := encode(s)
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), ".new-"+wire.NewID())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(temp, sidePath(path))
	}
	if err != nil {
		os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
