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
	cr      bool              // the last of these was a CR
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
	if f.skipped == 0 && len(b) <= f.max+1 { // a CR may still be stripped
		f.scanned = len(b)
		return len(b)
	}
	f.skip(b)
	f.scanned = 0
	return 0
}

// skip drops bytes of a line over the cap.
func (f *framer) skip(b []byte) {
	if len(b) > 0 {
		f.skipped += int64(len(b))
		f.cr = b[len(b)-1] == '\r'
	}
}

func (f *framer) finish(line []byte) {
	if f.skipped > 0 {
		f.skip(line)
		n := f.skipped
		if f.cr {
			n--
		}
		f.skipped, f.cr = 0, false
		f.lost(n)
		return
	}
	line = bytes.TrimSuffix(line, cr)
	switch {
	case len(line) > f.max:
		f.lost(int64(len(line)))
	case len(line) > 0:
		f.line(line)
	}
}

var cr = []byte{'\r'}

// end takes what was kept when the stream ended, and returns the last line if
// it lacks its end.
func (f *framer) end(b []byte) []byte {
	b = bytes.TrimSuffix(b, cr)
	if f.skipped > 0 || len(b) > f.max {
		f.finish(b)
		return nil
	}
	return b
}
