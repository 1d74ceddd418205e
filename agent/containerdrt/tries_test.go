package containerdrt

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/containerdrt/gates"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

func TestNames(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := cluster.AttemptID{Job: cluster.JobID(rapid.Uint64Min(1).Draw(rt, "job")), No: rapid.Uint32Min(1).Draw(rt, "attempt")}
		try := rapid.IntRange(1, 1000).Draw(rt, "try")
		got, n, err := parseName(nameOf(id, try))
		if err != nil || got != id || n != try {
			rt.Fatalf("%s: got %s, %d, %v", nameOf(id, try), got, n, err)
		}
	})
	for _, name := range []string{"", "j1", "j1-a1.", "j1-a1.1", "j1-a1.02", "j1-a1.-2", "j1-a1.x", "j1-a1.2.3", "x.2"} {
		if id, n, err := parseName(name); err == nil {
			t.Errorf("%q: got %s, %d", name, id, n)
		}
	}
}

// TestMadeAgain ends the process that a created task holds back: it never
// began, and the next try is a container of another name.
func TestMadeAgain(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for i, image := range []string{"", b.image} {
		l := b.job(i+1, image, "/bin/sh", "-c", "echo ran; exit 7")
		l.Env = []string{"PATH=/usr/bin:/bin"}
		for range 2 {
			if err := b.rt.Create(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if err := b.rt.group(l.ID).Signal(syscall.SIGKILL, 0); err != nil {
				t.Fatal(err)
			}
			b.until("the end of what was held back", func() bool {
				task, err := b.rt.Inspect(t.Context(), l.ID)
				return err == nil && task.Phase == runtime.Absent
			})
		}
		b.start(l)
		if got, want := b.rt.tries.name(l.ID), l.ID.String()+".3"; got != want {
			t.Errorf("the container is %s, want %s", got, want)
		}
		if task := b.wait(l.ID); task.Phase != runtime.Stopped || task.ExitCode != 7 || b.ran(l) != 1 {
			t.Errorf("%s: got %+v after %d runs", l.ID, task, b.ran(l))
		}
		b.until("the end of the earlier tries", func() bool {
			all, err := b.rt.client.Containers(b.rt.with(t.Context()))
			return err == nil && len(all) == 1
		})
		list, err := b.rt.List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != l.ID {
			t.Errorf("%s: the list is %v, %v", l.ID, list, err)
		}
		if err := b.rt.Delete(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, pattern := range []string{filepath.Join(b.dir, "rt", "*", "*"), filepath.Join(b.dir, "rt", l.ID.String()+"*"), gates.Dir + "/" + filepath.Base(b.dir) + ".*", b.bundle(l.ID) + "*"} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, found...)
		}
		if diff := cmp.Diff([]string(nil), left); diff != "" {
			t.Errorf("left behind (-want +got):\n%s", diff)
		}
	}
}
