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

// taskLog records the state of tasks, one checksummed line each, in one file: with a file
// per task the disk would have to allocate each, which costs more than writing its content.
// Only ends are synced, and put returns when one is on disk; one fsync serves all that wait
// for one. The lines of deleted tasks are dropped when they make up most of the file.
type taskLog struct {
	path       string
	mu         sync.Mutex
	f          *os.File
	lines      map[cluster.AttemptID][]span // of tasks not deleted
	size, kept int                          // bytes in the file, and in the lines to keep
	torn       bool                         // a line was not written completely
	waiting    []chan error
	syncing    bool
}

// span is where a line is in the file, without its newline: requests to create tasks are
// too large to keep them in memory as well.
type span struct{ at, size int }

// taskRecord is the content of a line: one of these. A line with a Launch is the original
// request to create the task.
type taskRecord struct {
	Launch  *launch.Launch     `json:",omitempty"`
	Started *cluster.AttemptID `json:",omitempty"` // from here on it may have run
	Ended   *runtime.Task      `json:",omitempty"`
	Deleted *cluster.AttemptID `json:",omitempty"`
}

// compactSlack is how many bytes of deleted tasks are always tolerated.
const compactSlack = 4 << 20

// openTaskLog reads the record. It calls damaged with the number of each invalid line.
func openTaskLog(path string, damaged func(line int)) (*taskLog, map[cluster.AttemptID]*task, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, err
	}
	l := &taskLog{path: path, f: f, lines: map[cluster.AttemptID][]span{}}
	tasks := map[cluster.AttemptID]*task{}
	// A Reader, not a Scanner: a line left by a crash may have any length.
	for r, n := bufio.NewReader(f), 1; ; n++ {
		line, err := r.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if err != nil && err != io.EOF {
			return nil, nil, fmt.Errorf("read %s: %w", path, errors.Join(err, f.Close()))
		}
		at := l.size
		l.size += len(line)
		sum, body, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		var rec taskRecord
		switch {
		case line == "\n":
		case !ok || sum != checksum([]byte(body)) || json.Unmarshal([]byte(body), &rec) != nil:
			damaged(n)
		default:
			l.replay(tasks, rec, span{at, len(strings.TrimSuffix(line, "\n"))})
		}
	}
	l.torn = true // the last line may be torn: it must not swallow the next one
	return l, tasks, nil
}

// replay applies a line to the tasks read so far. What was running when its keeper died is
// lost: its exit code went with its parent.
func (l *taskLog) replay(tasks map[cluster.AttemptID]*task, rec taskRecord, line span) {
	var id cluster.AttemptID
	switch {
	case rec.Launch != nil: // also after a start that was undone
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

func (l *taskLog) keep(id cluster.AttemptID, line span) {
	l.lines[id] = append(l.lines[id], line)
	l.kept += line.size + 1
}

func (l *taskLog) drop(id cluster.AttemptID) {
	for _, line := range l.lines[id] {
		l.kept -= line.size + 1
	}
	delete(l.lines, id)
}

func checksum(b []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(b)) }

// lineOf returns the line for a body, which is JSON without newlines.
func lineOf(body []byte) string { return checksum(body) + " " + string(body) + "\n" }

func (r taskRecord) line() (string, error) {
	body, err := json.Marshal(r)
	return lineOf(body), err
}

// write appends a line. The caller holds the lock.
func (l *taskLog) write(line string) (span, error) {
	if l.torn {
		line = "\n" + line
	}
	n, err := l.f.WriteString(line)
	l.size += n
	l.torn = err != nil
	text := len(strings.Trim(line, "\n"))
	return span{l.size - text - 1, text}, err
}

// read returns a line with its newline. The lock is held.
func (l *taskLog) read(line span) (string, error) {
	text := make([]byte, line.size)
	_, err := l.f.ReadAt(text, int64(line.at))
	return string(text) + "\n", err
}

// create records the request to create a task.
func (l *taskLog) create(id cluster.AttemptID, request []byte) error {
	if bytes.IndexByte(request, '\n') >= 0 {
		return errors.New("record task: the request has several lines")
	}
	line := lineOf(request)
	l.mu.Lock()
	defer l.mu.Unlock()
	at, err := l.write(line)
	if err != nil {
		return fmt.Errorf("record task: %w", err)
	}
	l.drop(id)
	l.keep(id, at)
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
	at, err := l.write(line)
	if err != nil {
		return nil, fmt.Errorf("record start: %w", err)
	}
	l.keep(id, at)
	return func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.lines[id]) == 0 {
			return nil // it was deleted
		}
		created, err := l.read(l.lines[id][0])
		if err != nil {
			return fmt.Errorf("take back the record of a start: %w", err)
		}
		again, err := l.write(created)
		if err != nil {
			return fmt.Errorf("take back the record of a start: %w", err)
		}
		l.drop(id)
		l.keep(id, again)
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
	at, err := l.write(line)
	if err != nil {
		return err
	}
	l.keep(t.ID, at)
	l.waiting = append(l.waiting, done)
	if !l.syncing {
		l.sync()
	}
	l.mu.Unlock()
	err = <-done
	l.mu.Lock()
	return err
}

// sync syncs for all that wait, and for those that arrive meanwhile. It is called with the
// lock held, and releases it while the disk works.
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

// forget records that a task was deleted, and drops its lines sooner or later. If the disk
// is full, the next keeper knows the task again, and its agent deletes it again.
func (l *taskLog) forget(id cluster.AttemptID) error {
	line, err := taskRecord{Deleted: &id}.line()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(id)
	if l.size < compactSlack+4*l.kept || l.syncing {
		_, err = l.write(line)
		return err
	}
	return l.compact()
}

// compact writes the valid lines to a new file that replaces the old one.
func (l *taskLog) compact() error {
	f, err := os.OpenFile(l.path+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("compact tasks: %w", err)
	}
	w, size := bufio.NewWriter(f), 0
	moved := make(map[cluster.AttemptID][]span, len(l.lines))
	for id, lines := range l.lines {
		for _, line := range lines {
			text, rerr := l.read(line)
			err = errors.Join(err, rerr)
			_, _ = w.WriteString(text) // Flush returns any error
			moved[id] = append(moved[id], span{size, line.size})
			size += len(text)
		}
	}
	if err := errors.Join(err, w.Flush(), f.Sync()); err != nil {
		return fmt.Errorf("compact tasks: %w", errors.Join(err, f.Close()))
	}
	if err := os.Rename(l.path+".new", l.path); err != nil {
		return fmt.Errorf("compact tasks: %w", errors.Join(err, f.Close()))
	}
	old := l.f
	l.f, l.size, l.lines, l.torn = f, size, moved, false
	return old.Close()
}

func (l *taskLog) close() error { return l.f.Close() }
