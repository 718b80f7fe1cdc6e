package transport

import "bytes"

// framer cuts a stream into lines. It never holds more than one line, and of a
// line over the cap nothing but its length.
type framer struct {
	max     int // bytes of a line, without its end
	line    func([]byte)
	lost    func(bytes int64) // a line over the cap has ended
	scanned int               // of the unfinished line, bytes known to hold no LF
	skipped int64             // bytes of a line over the cap that were dropped so far
}

// feed takes the stream's next bytes, with the unfinished line that it asked to
// keep in front of them, and returns how many bytes at the end to keep.
func (f *framer) feed(b []byte) (keep int) {
	for {
		i := bytes.IndexByte(b[f.scanned:], '\n')
		if i < 0 {
			break
		}
		end := f.scanned + i
		f.finish(b[:end])
		b = b[end+1:]
		f.scanned = 0
	}
	if f.skipped > 0 || len(b) > f.max+1 { // a CR may still be stripped
		f.skipped += int64(len(b))
		f.scanned = 0
		return 0
	}
	f.scanned = len(b)
	return len(b)
}

func (f *framer) finish(line []byte) {
	if f.skipped > 0 || len(line) > f.max+1 {
		f.lost(f.skipped + int64(len(line)))
		f.skipped = 0
		return
	}
	line = bytes.TrimSuffix(line, []byte{'\r'})
	switch {
	case len(line) > f.max:
		f.lost(int64(len(line)))
	case len(line) > 0:
		f.line(line)
	}
}
