// Package tail finds the last lines of files, on nodes and on users' machines.
package tail

import (
	"bytes"
	"io"
)

// block is how much is read at a time while looking for lines.
const block = 64 << 10

// Max is how far back Offset looks: a file of any size without a single line can be created in
// no time, and its owner may request its end again and again.
const Max = 64 << 20

// Offset returns where the last lines of the first size bytes of f begin. What follows the last
// newline counts as a line. If the last Max bytes contain fewer lines, the offset is where
// those bytes begin.
func Offset(f io.ReaderAt, size, lines int64) (int64, error) {
	if lines <= 0 {
		return size, nil
	}
	buf := make([]byte, block)
	// The newline at the very end ends the last line and begins none.
	first := max(0, size-Max)
	for end := size; end > first; {
		from := max(first, end-block)
		part := buf[:end-from]
		if n, err := f.ReadAt(part, from); err != nil && !(err == io.EOF && n == len(part)) {
			if err == io.EOF { // it was truncated meanwhile
				return 0, nil
			}
			return 0, err
		}
		if end == size && part[len(part)-1] == '\n' {
			part = part[:len(part)-1]
		}
		if n := int64(bytes.Count(part, []byte{'\n'})); n < lines {
			lines -= n
			end = from
			continue
		}
		for ; ; lines-- {
			i := bytes.LastIndexByte(part, '\n')
			if lines == 1 {
				return from + int64(i) + 1, nil
			}
			part = part[:i]
		}
	}
	return first, nil
}
