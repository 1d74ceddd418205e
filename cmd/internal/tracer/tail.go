package tracer

import (
	"io"
	"strings"
	"sync"
)

// shared lets both streams of a program go to one writer.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}

// tail is a writer that keeps the last maxTail bytes of what it is given and
// passes everything on. It takes any amount, so that no program waits for it.
type tail struct {
	also io.Writer // may be nil

	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer; it never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	keep := b[max(0, len(b)-maxTail):]
	if over := len(t.buf) + len(keep) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	t.buf = append(t.buf, keep...)
	if t.also != nil {
		_, _ = t.also.Write(b) // a reader that is gone must not stop the program
	}
	return len(b), nil
}

// text is what was kept, from the start of a line if possible, without control
// characters.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := string(t.buf)
	if i := strings.IndexByte(s, '\n'); len(t.buf) == maxTail && i >= 0 && i < len(s)-1 {
		s = s[i+1:]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?")))
}
