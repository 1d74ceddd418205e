package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/berth-scheduler/berth/agent/cgroup"
	"github.com/berth-scheduler/berth/agent/containerdrt/shimproc"
	"github.com/berth-scheduler/berth/agent/proc"
	"github.com/berth-scheduler/berth/cluster"
)

// Each try to make a container has a name and a control group of its own, that
// of the attempt and from the second try on a number. containerd clears up
// after a shim that ended, and after a request that was given up, when it gets
// round to it, and then has runc kill whatever has the name.

func nameOf(id cluster.AttemptID, try int) string {
	if try <= 1 {
		return id.String()
	}
	return id.String() + "." + strconv.Itoa(try)
}

// parseName reads what nameOf wrote.
func parseName(name string) (id cluster.AttemptID, try int, err error) {
	first, no, again := strings.Cut(name, ".")
	if id, err = cluster.ParseAttemptID(first); err != nil {
		return id, 0, err
	}
	if try = 1; again {
		if try, err = strconv.Atoi(no); err != nil || nameOf(id, try) != name || try <= 1 {
			return id, 0, fmt.Errorf("%q is not the name of a container of ours", name)
		}
	}
	return id, try, nil
}

// tries says which there were.
type tries struct {
	last    int // the newest, 0 before the first
	cleared int // up to here nothing is left of them
}

func (r *Runtime) group(id cluster.AttemptID) *cgroup.Group {
	return r.clearer.groupOf(r.tries.name(id))
}

// tryBook knows how often the container of each attempt was made. It is safe for
// concurrent use.
type tryBook struct {
	records records

	mu    sync.Mutex
	tries map[cluster.AttemptID]tries
	// changing is held while numbers change, on disk too.
	changing sync.Mutex
}

func newTryBook(r records) *tryBook {
	return &tryBook{records: r, tries: map[cluster.AttemptID]tries{}}
}

// of reads the file of an attempt, once.
func (b *tryBook) of(id cluster.AttemptID) tries {
	b.mu.Lock()
	t, known := b.tries[id]
	b.mu.Unlock()
	if known {
		return t
	}
	data, err := os.ReadFile(b.records.file(id, kindTry))
	if err != nil {
		return tries{}
	}
	if _, err := fmt.Sscan(string(data), &t.last, &t.cleared); err != nil {
		return tries{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if newer, known := b.tries[id]; known {
		return newer
	}
	b.tries[id] = t
	return t
}

// change keeps what by makes of an attempt's tries, unless they were
// forgotten. The file is written beside and renamed: half a number is another
// one.
func (b *tryBook) change(id cluster.AttemptID, by func(*tries)) error {
	b.changing.Lock() // over the file, too: it has two writers
	defer b.changing.Unlock()
	t := b.of(id)
	if by(&t); t.last == 0 {
		return nil
	}
	file := b.records.file(id, kindTry)
	if err := os.WriteFile(file+".new", fmt.Appendln(nil, t.last, t.cleared), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tries[id] = t
	return nil
}

// name is that of the attempt's container.
func (b *tryBook) name(id cluster.AttemptID) string { return nameOf(id, b.of(id).last) }

// forget is for an attempt of which nothing is left.
func (b *tryBook) forget(id cluster.AttemptID) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	for _, kind := range []string{kindTry + ".new", kindTry} {
		if err := os.Remove(b.records.file(id, kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tries, id)
	return nil
}

// nextTry makes way for a container of an attempt that has none, or one that
// certainly never began. No process of an earlier try is left afterwards; the
// rest is cleared away later, since a node in trouble has better to do.
func (r *Runtime) nextTry(id cluster.AttemptID) error {
	if r.tries.of(id).last > 0 {
		if err := r.group(id).Kill(); err != nil {
			return fmt.Errorf("end an earlier try: %w", err)
		}
		if !r.records.startedAt(id).IsZero() {
			r.cfg.Log.Info("a task that was cut off in its start, before its first step, is made again", "task", id.String())
			if err := os.Remove(r.records.file(id, kindStarted)); err != nil {
				return err
			}
		}
		r.firsts.LetGo(id)
	}
	return r.tries.change(id, func(t *tries) { t.last++ })
}

// tidy clears earlier tries away behind the one that was made, which is what
// first, its first process, is for: beside the directory in which its shim works
// lie those of the others, and containerd forgets them when it dies at certain
// moments.
func (r *Runtime) tidy(id cluster.AttemptID, first int) {
	last := r.tries.of(id).last
	if last <= 1 {
		return
	}
	beside := ""
	if pid, err := proc.Parent(first); err == nil {
		if s, ok := shimproc.Of(pid); ok && filepath.Base(s.Dir) == nameOf(id, last) {
			beside = filepath.Dir(s.Dir)
		}
	}
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, callDeadline)
		defer cancel()
		if err := r.clearer.clearEarlier(ctx, id); err != nil {
			r.cfg.Log.Warn("earlier tries are cleared away later", "task", id.String(), "err", err)
			return
		}
		for n := 1; n < last && beside != ""; n++ {
			name := nameOf(id, n)
			_ = shimproc.RemoveBundle(filepath.Join(beside, name), r.cfg.Namespace, name) // it is seldom there
		}
	})
}
