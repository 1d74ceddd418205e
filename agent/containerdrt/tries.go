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

// Each try to create a container has its own name and control group: the attempt's, with a
// number from the second try on. containerd cleans up after a shim that ended, and after an
// abandoned request, when it gets round to it, and then has runc kill whatever has that
// name.

func nameOf(id cluster.AttemptID, try int) string {
	if try <= 1 {
		return id.String()
	}
	return id.String() + "." + strconv.Itoa(try)
}

// parseName parses what nameOf returned.
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

// tries counts the tries of an attempt.
type tries struct {
	last    int // the newest, 0 before the first
	cleared int // nothing is left of the tries up to this one
}

func (r *Runtime) group(id cluster.AttemptID) *cgroup.Group {
	return r.clearer.groupOf(r.tries.name(id))
}

// tryBook records how often the container of each attempt was created. It is safe for
// concurrent use.
type tryBook struct {
	records records

	mu    sync.Mutex
	tries map[cluster.AttemptID]tries
	// changing is held while numbers change, including on disk.
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

// change applies by to an attempt's tries, unless they were forgotten. The file is replaced
// by renaming: half a number would be another number.
func (b *tryBook) change(id cluster.AttemptID, by func(*tries)) error {
	b.changing.Lock() // also guards the file, which has two writers
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

// name returns the name of the attempt's container.
func (b *tryBook) name(id cluster.AttemptID) string { return nameOf(id, b.of(id).last) }

// forget drops an attempt of which nothing is left.
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

// nextTry makes way for a container of an attempt that has none, or one that certainly
// never began. No process of an earlier try remains afterwards; the rest is removed later,
// since a node in trouble has more urgent work.
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

// tidy removes earlier tries once the new one exists, for which it needs first, its first
// process: the directories of the others are next to the one in which its shim works, and
// containerd forgets them if it dies at certain moments.
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
			_ = shimproc.RemoveBundle(filepath.Join(beside, name), r.cfg.Namespace, name) // it rarely exists
		}
	})
}
