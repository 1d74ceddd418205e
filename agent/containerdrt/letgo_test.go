package containerdrt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/agent"
)

// TestLetGo: a task that is held back was not let go, one that ended by itself
// was, and of one that runc left in between, or forgot, nobody is sure.
func TestLetGo(t *testing.T) {
	t.Parallel()
	require(t)
	b := newBench(t)
	for i, image := range []string{"", b.image} {
		l := b.job(i+1, image, "/bin/sh", "-c", "exit 1")
		if err := b.rt.Create(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if b.rt.LetGo(l.ID) {
			t.Errorf("%s: created, and said to be let go", l.ID)
		}
		if err := b.rt.Start(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		if task := b.wait(l.ID); task.Phase != agent.TaskStopped || task.ExitCode != 1 {
			t.Fatalf("%s ended as %+v", l.ID, task)
		}
		if !b.rt.LetGo(l.ID) {
			t.Errorf("%s: it ran, and is not said to be let go", l.ID)
		}
		fifo := filepath.Join(runcRoot, filepath.Base(b.dir), l.ID.String(), "exec.fifo")
		if err := os.WriteFile(fifo, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if b.rt.LetGo(l.ID) {
			t.Errorf("%s: with its fifo left, it is said to be let go", l.ID)
		}
		if err := b.rt.Delete(t.Context(), l.ID); err != nil {
			t.Fatal(err)
		}
		if b.rt.LetGo(l.ID) {
			t.Errorf("%s: deleted, and said to be let go", l.ID)
		}
	}
}
