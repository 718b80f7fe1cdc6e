package journal

import "os"

// Size is how many bytes a journal takes on disk.
func Size(dir string) (int64, error) {
	all, err := segments(dir)
	var total int64
	for _, s := range all {
		total += s.size
	}
	return total, err
}

// Trim removes the oldest segments of a journal that nobody writes, as long as
// it takes more than max bytes; the last one stays. Only the holder of the
// instance's alive lock may call it.
func Trim(dir string, max int64) error {
	all, err := segments(dir)
	if err != nil {
		return err
	}
	total, err := Size(dir)
	for i := 0; err == nil && i < len(all)-1 && total > max; i++ {
		err = os.Remove(segmentPath(dir, all[i].first))
		total -= all[i].size
	}
	return err
}

// Trim is [Trim] for a journal that is open for writing. It is done once; the
// cap in force stays what it was.
func (j *Journal) Trim(max int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.drop(max)
}
