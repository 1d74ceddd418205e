package processrt

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/asuser"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// TestAFileSystemThatDoesNotAnswer: a start that waits for one ends with words, and the task
// may then be deleted. Once the file system answers, what it opened is closed, nothing is
// started and no output emptied; a task that is still wanted starts at the next try.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	k := &keeper{
		dir: t.TempDir(), noCaps: errors.New("no control groups"), log: slog.New(slog.DiscardHandler),
		watchers: map[chan runtime.Task]struct{}{}, quit: make(chan struct{}), spawn: newSpawner(nil),
	}
	defer close(k.spawn.reqs)
	if err := k.load(); err != nil {
		t.Fatal(err)
	}
	defer k.record.close()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err == nil {
		_, err = out.WriteString("of another run")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	answer, files := make(chan struct{}), make(chan *asuser.Files, 2)
	k.waits.Patience, k.look = time.Millisecond, func(l *launch.Launch) (opened, error) {
		<-answer
		o, err := lookAt(l)
		files <- o.files
		return o, err
	}
	uid := uint32(os.Getuid())
	create := func(job cluster.JobID) cluster.AttemptID {
		l := newLaunch(uint64(job), "true")
		l.UID, l.GID, l.Stdout, l.Stderr, l.Truncate = uid, uint32(os.Getgid()), out.Name(), out.Name(), true
		if err := k.create(request{Op: opCreate, Launch: l}, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		return l.ID
	}
	given, kept := create(1), create(2)
	for _, id := range []cluster.AttemptID{given, kept} {
		if err := k.start(id); !errors.Is(err, asuser.ErrSilent) || !strings.Contains(err.Error(), "the output "+out.Name()) {
			t.Fatalf("got %v", err)
		}
	}
	if err := k.delete(given); err != nil {
		t.Error(err)
	}
	close(answer)
	for range 2 {
		f := <-files
		until(t, "its files to be closed", func() bool { _, err := f.Out.Stat(); return errors.Is(err, os.ErrClosed) })
	}
	if st, err := out.Stat(); err != nil || st.Size() == 0 || k.tasks[kept].state.Phase != runtime.Created {
		t.Errorf("after the file system answered: %v, %v, phase %s", st, err, k.tasks[kept].state.Phase)
	}
	k.waits.Patience = time.Hour
	if err := k.start(kept); err != nil {
		t.Fatal(err)
	}
	k.reapers.Wait()
	if st, err := out.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("the output of a start that was not too late: %v, %v", st, err)
	}
}
