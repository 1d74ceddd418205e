package processrt

import (
	"bufio"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/agent"
	"github.com/berth-scheduler/berth/cluster"
)

// endLog records how tasks ended, a line each with a checksum. put returns
// when the line is on disk; one fsync serves all who wait for one.
type endLog struct {
	mu      sync.Mutex
	f       *os.File
	waiting []chan error
	syncing bool
}

// openEndLog reads what was recorded; a torn last line is dropped.
func openEndLog(path string) (*endLog, map[cluster.AttemptID]agent.Task, error) {
	ends := map[cluster.AttemptID]agent.Task{}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		sum, body, ok := strings.Cut(sc.Text(), " ")
		if !ok || sum != checksum(body) {
			continue
		}
		var t agent.Task
		if json.Unmarshal([]byte(body), &t) == nil {
			ends[t.ID] = t
		}
	}
	if err := sc.Err(); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	// A torn line must not swallow the next one.
	if _, err := f.WriteString("\n"); err != nil {
		return nil, nil, err
	}
	return &endLog{f: f}, ends, nil
}

func checksum(s string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(s))) }

func (l *endLog) put(t agent.Task) error {
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	l.mu.Lock()
	if _, err := fmt.Fprintf(l.f, "%s %s\n", checksum(string(body)), body); err != nil {
		l.mu.Unlock()
		return err
	}
	l.waiting = append(l.waiting, done)
	if l.syncing {
		l.mu.Unlock()
		return <-done
	}
	l.syncing = true
	for len(l.waiting) > 0 {
		ws := l.waiting
		l.waiting = nil
		l.mu.Unlock()
		err := l.f.Sync()
		for _, w := range ws {
			w <- err
		}
		l.mu.Lock()
	}
	l.syncing = false
	l.mu.Unlock()
	return <-done
}

// truncate forgets everything; no task is left that could ask.
func (l *endLog) truncate() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Truncate(0)
}

func (l *endLog) close() error { return l.f.Close() }
