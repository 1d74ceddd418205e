package containerdrt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

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

// triesOf reads the file of an attempt, once.
func (r *Runtime) triesOf(id cluster.AttemptID) tries {
	r.mu.Lock()
	t, known := r.tries[id]
	r.mu.Unlock()
	if known {
		return t
	}
	data, err := os.ReadFile(r.file(id, kindTry))
	if err != nil {
		return tries{}
	}
	if _, err := fmt.Sscan(string(data), &t.last, &t.cleared); err != nil {
		return tries{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if newer, known := r.tries[id]; known {
		return newer
	}
	r.tries[id] = t
	return t
}

// changeTries keeps what change makes of an attempt's tries, unless they were
// forgotten. The file is written beside and renamed: half a number is another
// one.
func (r *Runtime) changeTries(id cluster.AttemptID, change func(*tries)) error {
	r.changing.Lock() // over the file, too: it has two writers
	defer r.changing.Unlock()
	t := r.triesOf(id)
	if change(&t); t.last == 0 {
		return nil
	}
	file := r.file(id, kindTry)
	if err := os.WriteFile(file+".new", fmt.Appendln(nil, t.last, t.cleared), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries[id] = t
	return nil
}

// name is that of the attempt's container.
func (r *Runtime) name(id cluster.AttemptID) string { return nameOf(id, r.triesOf(id).last) }

func (r *Runtime) group(id cluster.AttemptID) *cgroup.Group { return r.groupOf(r.name(id)) }

func (r *Runtime) groupOf(name string) *cgroup.Group {
	return r.groups.Open(path.Join("/", r.cfg.CgroupParent, name))
}

// nextTry makes way for a container of an attempt that has none, or one that
// certainly never began. No process of an earlier try is left afterwards; the
// rest is cleared away later, since a node in trouble has better to do.
func (r *Runtime) nextTry(id cluster.AttemptID) error {
	if r.triesOf(id).last > 0 {
		if err := r.group(id).Kill(); err != nil {
			return fmt.Errorf("end an earlier try: %w", err)
		}
		if !r.startedAt(id).IsZero() {
			r.cfg.Log.Info("a task that was cut off in its start, before its first step, is made again", "task", id.String())
			if err := os.Remove(r.file(id, kindStarted)); err != nil {
				return err
			}
		}
		r.letGo(id)
	}
	return r.changeTries(id, func(t *tries) { t.last++ })
}

// forgetTries is for an attempt of which nothing is left.
func (r *Runtime) forgetTries(id cluster.AttemptID) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	for _, kind := range []string{kindTry + ".new", kindTry} {
		if err := os.Remove(r.file(id, kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tries, id)
	return nil
}

// clearEarlier removes what the tries before the newest left, one attempt's at a
// time.
func (r *Runtime) clearEarlier(ctx context.Context, id cluster.AttemptID) error {
	r.clearing.Lock()
	defer r.clearing.Unlock()
	t := r.triesOf(id)
	if t.cleared+1 >= t.last {
		return nil
	}
	shims := r.allShims()
	for n := t.cleared + 1; n < t.last; n++ {
		name := nameOf(id, n)
		if err := r.clearTry(ctx, name, shims[name]); err != nil {
			return err
		}
		// The next agent should not begin at the first again: there may be many.
		if err := r.changeTries(id, func(t *tries) { t.cleared = n }); err != nil {
			return err
		}
	}
	return nil
}

// clearTry removes what a try left, wherever it was broken off: a container, a
// task without one, a snapshot without one, a shim of which containerd does not
// know, runc's notes, control groups.
func (r *Runtime) clearTry(ctx context.Context, name string, shims []shimproc.Shim) error {
	c, err := r.client.LoadContainer(ctx, name)
	switch {
	case err == nil:
		if err := r.deleteContainer(ctx, c); err != nil {
			return err
		}
	case !errdefs.IsNotFound(err):
		return err
	default:
		if len(shims) > 0 {
			if err := forget(ctx, r.client, name); err != nil {
				r.cfg.Log.Debug("a task without a container is left to containerd", "container", name, "err", err)
			}
		}
		if err := r.client.SnapshotService("").Remove(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove the snapshot of %s: %w", name, err)
		}
	}
	r.endShims(ctx, name, shims)
	g := r.groupOf(name)
	if err := errors.Join(g.Kill(), g.Remove()); err != nil {
		return fmt.Errorf("end what is left of %s: %w", name, err)
	}
	return r.removeGate(name)
}

// endShims ends the shims of a container that is no more, and clears away what
// they and runc had on it.
func (r *Runtime) endShims(ctx context.Context, name string, shims []shimproc.Shim) {
	var bundles []string
	for _, s := range shims {
		if filepath.Base(s.Dir) == name {
			bundles = append(bundles, s.Dir)
		}
		_ = s.Kill() // it may be on its way out
	}
	if _, err := os.Stat(filepath.Join(runcRoot, r.cfg.Namespace, name)); err == nil {
		cctx, cancel := context.WithTimeout(ctx, runcTimeout)
		defer cancel()
		out, err := exec.CommandContext(cctx, "runc", "--root", filepath.Join(runcRoot, r.cfg.Namespace), "delete", "--force", name).CombinedOutput()
		if err != nil {
			r.cfg.Log.Warn("cannot clear up an earlier try", "container", name, "err", err, "output", string(out))
		}
	}
	for _, dir := range bundles {
		err := shimproc.RemoveBundle(dir, r.cfg.Namespace, name)
		r.cfg.Log.Info("a shim was left of an earlier try", "container", name, "dir", dir, "err", err)
	}
}

// tidy clears earlier tries away behind the one that was made, which is what
// first, its first process, is for: beside the directory in which its shim works
// lie those of the others, and containerd forgets them when it dies at certain
// moments.
func (r *Runtime) tidy(id cluster.AttemptID, first int) {
	last := r.triesOf(id).last
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
		if err := r.clearEarlier(ctx, id); err != nil {
			r.cfg.Log.Warn("earlier tries are cleared away later", "task", id.String(), "err", err)
			return
		}
		for n := 1; n < last && beside != ""; n++ {
			name := nameOf(id, n)
			_ = shimproc.RemoveBundle(filepath.Join(beside, name), r.cfg.Namespace, name) // it is seldom there
		}
	})
}
