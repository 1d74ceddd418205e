package processrt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// taskLog records what becomes of tasks, a line each with a checksum, in one file: a file
// for each task would have the disk look for a place for it, which costs more than
// all that stands in it. Only ends are synced, and put returns when one is on disk; one
// fsync serves all who wait for one. Lines of tasks that were deleted go when they are
// most of the file.
type taskLog struct {
	path       string
	mu         sync.Mutex
	f          *os.File
	lines      map[cluster.AttemptID][]string // of tasks not deleted
	size, kept int                            // bytes in the file, and of lines
	torn       bool                           // a line was not written whole
	waiting    []chan error
	syncing    bool
}

// taskRecord is what a line holds: one of these. A line with a Launch is the request to
// create the task, as it came.
type taskRecord struct {
	Launch  *launch.Launch     `json:",omitempty"`
	Started *cluster.AttemptID `json:",omitempty"` // from here on it may have run
	Ended   *runtime.Task      `json:",omitempty"`
	Deleted *cluster.AttemptID `json:",omitempty"`
}

// compactSlack is how many bytes of deleted tasks are always kept.
const compactSlack = 4 << 20

// openTaskLog reads what was recorded. damaged is told the number of each line that does
// not count.
func openTaskLog(path string, damaged func(line int)) (*taskLog, map[cluster.AttemptID]*task, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	l := &taskLog{path: path, f: f, lines: map[cluster.AttemptID][]string{}}
	tasks := map[cluster.AttemptID]*task{}
	// A reader and no scanner: a line that a crash left may be of any length.
	for r, n := bufio.NewReader(f), 1; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if err != nil && err != io.EOF {
			return nil, nil, fmt.Errorf("read %s: %w", path, errors.Join(err, f.Close()))
		}
		l.size += len(line)
		sum, body, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var rec taskRecord
		switch {
		case line == "\n":
		case !ok || sum != checksum([]byte(body)) || json.Unmarshal([]byte(body), &rec) != nil:
			damaged(n)
		default:
			l.replay(tasks, rec, strings.TrimSuffix(line, "\n")+"\n")
		}
	}
	l.torn = true // the last line may be: it must not swallow the next one
	return l, tasks, nil
}

// replay has a line count for what came before it. What ran when its keeper died is lost:
// its exit code went with its parent.
func (l *taskLog) replay(tasks map[cluster.AttemptID]*task, rec taskRecord, line string) {
	var id cluster.AttemptID
	switch {
	case rec.Launch != nil: // also of one that is to have begun, and did not
		id = rec.Launch.ID
		l.drop(id)
		tasks[id] = &task{launch: rec.Launch, state: runtime.Task{ID: id, Token: rec.Launch.Token, Phase: runtime.Created}}
	case rec.Started != nil:
		if id = *rec.Started; tasks[id] != nil {
			tasks[id].state.Phase = runtime.Lost
		}
	case rec.Ended != nil:
		if id = rec.Ended.ID; tasks[id] != nil && tasks[id].state.Token == rec.Ended.Token {
			tasks[id].state = *rec.Ended
		}
	case rec.Deleted != nil:
		l.drop(*rec.Deleted)
		delete(tasks, *rec.Deleted)
	}
	if tasks[id] != nil {
		l.keep(id, line)
	}
}

func (l *taskLog) keep(id cluster.AttemptID, line string) {
	l.lines[id] = append(l.lines[id], line)
	l.kept += len(line)
}

func (l *taskLog) drop(id cluster.AttemptID) {
	for _, line := range l.lines[id] {
		l.kept -= len(line)
	}
	delete(l.lines, id)
}

func checksum(b []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)) }

// lineOf is the line with a body, which is JSON in one line.
func lineOf(body []byte) string { return checksum(body) + " " + string(body) + "\n" }

func (r taskRecord) line() (string, error) {
	body, err := json.Marshal(r)
	return lineOf(body), err
}

// write appends a line. The lock is held.
func (l *taskLog) write(line string) error {
	if l.torn {
		line = "\n" + line
	}
	n, err := l.f.WriteString(line)
	l.size += n
	l.torn = err != nil
	return err
}

// create records the request to create a task.
func (l *taskLog) create(id cluster.AttemptID, request []byte) error {
	if bytes.IndexByte(request, '\n') >= 0 {
		return errors.New("record task: the request has several lines")
	}
	line := lineOf(request)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(line); err != nil {
		return fmt.Errorf("record task: %w", err)
	}
	l.drop(id)
	l.keep(id, line)
	return nil
}

// start records that a task may have run. undo takes that back: it did not.
func (l *taskLog) start(id cluster.AttemptID) (undo func() error, err error) {
	line, err := taskRecord{Started: &id}.line()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(line); err != nil {
		return nil, fmt.Errorf("record start: %w", err)
	}
	created := l.lines[id]
	l.keep(id, line)
	return func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.write(created[0]); err != nil {
			return fmt.Errorf("take back the record of a start: %w", err)
		}
		l.drop(id)
		l.keep(id, created[0])
		return nil
	}, nil
}

// put records an end.
func (l *taskLog) put(t runtime.Task) error {
	line, err := taskRecord{Ended: &t}.line()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.write(line); err != nil {
		return err
	}
	l.keep(t.ID, line)
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
func (l *taskLog) sync() {
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

// forget records that a task was deleted, and drops its lines, sooner or later. On a full
// disk the next keeper would know the task again, and its agent has that delete it.
func (l *taskLog) forget(id cluster.AttemptID) error {
	line, err := taskRecord{Deleted: &id}.line()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(id)
	if l.size < compactSlack+4*l.kept || l.syncing {
		return l.write(line)
	}
	return l.compact()
}

// compact writes the lines that count into a new file in place of the old.
func (l *taskLog) compact() error {
	f, err := os.OpenFile(l.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("compact tasks: %w", err)
	}
	w := bufio.NewWriter(f)
	for _, lines := range l.lines {
		for _, line := range lines {
			_, _ = w.WriteString(line) // Flush says how that went
		}
	}
	if err := errors.Join(w.Flush(), f.Sync(), os.Rename(l.path+".new", l.path)); err != nil {
		return fmt.Errorf("compact tasks: %w", errors.Join(err, f.Close()))
	}
	old := l.f
	l.f, l.size, l.torn = f, l.kept, false
	return old.Close()
}

func (l *taskLog) close() error { return l.f.Close() }
