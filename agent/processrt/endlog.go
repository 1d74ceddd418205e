package processrt

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// endLog records how tasks ended, a line each with a checksum. put returns
// when the line is on disk; one fsync serves all who wait for one. Lines of
// tasks that were deleted go when they are most of the file.
type endLog struct {
	path    string
	mu      sync.Mutex
	f       *os.File
	lines   map[cluster.AttemptID]string // of tasks not deleted
	written int                          // lines in the file
	waiting []chan error
	syncing bool
}

// compactSlack is how many lines of deleted tasks are always kept.
const compactSlack = 1024

// openEndLog reads what was recorded; a torn last line is dropped.
func openEndLog(path string) (*endLog, map[cluster.AttemptID]runtime.Task, error) {
	ends := map[cluster.AttemptID]runtime.Task{}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	l := &endLog{path: path, f: f, lines: map[cluster.AttemptID]string{}}
	// A reader and no scanner: a line that a crash left may be of any length.
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if err != nil && err != io.EOF {
			return nil, nil, fmt.Errorf("read %s: %w", path, errors.Join(err, f.Close()))
		}
		l.written++
		sum, body, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || sum != checksum(body) {
			continue
		}
		var t runtime.Task
		if json.Unmarshal([]byte(body), &t) == nil {
			ends[t.ID] = t
			l.lines[t.ID] = sum + " " + body + "\n"
		}
	}
	// A torn line must not swallow the next one.
	if _, err := f.WriteString("\n"); err != nil {
		return nil, nil, err
	}
	return l, ends, nil
}

func checksum(s string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(s))) }

func (l *endLog) put(t runtime.Task) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s %s\n", checksum(string(body)), body)
	done := make(chan error, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.f.WriteString(line); err != nil {
		return err
	}
	l.lines[t.ID] = line
	l.written++
	l.waiting = append(l.waiting, done)
	if !l.syncing {
		l.sync()
	}
	l.mu.Unlock()
	err = <-done
	l.mu.Lock()
	return err
}

// sync syncs for all who wait, and for those who come meanwhile. It is called
// with the lock held, and lets go of it while the disk works.
func (l *endLog) sync() {
	l.syncing = true
	for len(l.waiting) > 0 {
		ws, f := l.waiting, l.f
		l.waiting = nil
		l.mu.Unlock()
		err := f.Sync()
		for _, w := range ws {
			w <- err
		}
		l.mu.Lock()
	}
	l.syncing = false
}

// forget drops the line of a deleted task, sooner or later.
func (l *endLog) forget(id cluster.AttemptID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lines, id)
	if l.syncing || l.written < compactSlack+4*len(l.lines) {
		return nil
	}
	return l.compact()
}

// compact writes the lines that count into a new file in place of the old.
func (l *endLog) compact() error {
	f, err := os.OpenFile(l.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("compact ends: %w", err)
	}
	for _, line := range l.lines {
		if _, err := f.WriteString(line); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(f.Sync(), os.Rename(l.path+".new", l.path)); err != nil {
		return fmt.Errorf("compact ends: %w", errors.Join(err, f.Close()))
	}
	old := l.f
	l.f, l.written = f, len(l.lines)
	return old.Close()
}

func (l *endLog) close() error { return l.f.Close() }
