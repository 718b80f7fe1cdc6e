//go:build darwin

package registry

import "golang.org/x/sys/unix"

// NetworkFS names the network file system that a folder lies on, if it does.
func NetworkFS(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return ""
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	switch name {
	case "nfs", "smbfs", "afpfs", "webdav":
		return name
	}
	return ""
}
