package enter_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestSignal loses the first answer of each node, and asks again with the same id.
func TestSignal(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"signal USR1 12", "scancel -s SIGUSR1 12", "scancel --signal 10 -n counted"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			f.Change(func() {
				for _, j := range f.Jobs {
					j.NodeList = "x1"
					if j.GetId() == 12 {
						j.NodeList, j.State, j.Name = "n[1-2]", "RUNNING", "counted"
					}
				}
			})
			tries := map[string]int{}
			a := w.ServeAttach("/a", f, func(o *apiv1.AttachOpen, s clitest.AttachEnd) error {
				if tries[o.GetNode()]++; tries[o.GetNode()] == 1 {
					return clitest.Refuse(cluster.CodeUnknown, "the connection broke")
				}
				return clitest.Say(s, clitest.EndedBy(&apiv1.AttachEnded{}))
			})
			if code := w.Run(strings.Fields(args)...); code != 0 {
				t.Fatalf("exit code %d: %s", code, w.Errs.String())
			}
			if len(a.Opens) != 4 || tries["n1"] != 2 || tries["n2"] != 2 {
				t.Fatalf("asked for %v", a.Opens)
			}
			for _, o := range a.Opens {
				s := o.GetSignal()
				if apiconv.CheckAttach(o) != nil || o.GetJob() != 12 || s.GetNumber() != uint32(syscall.SIGUSR1) || s.GetRequestId() != a.Opens[0].GetSignal().GetRequestId() {
					t.Errorf("asked for %v", o)
				}
			}
		})
	}
}

func TestSignalRefused(t *testing.T) {
	t.Parallel()
	lost := []error{clitest.Refuse(cluster.CodeUnknown, "the connection broke"), clitest.Refuse(cluster.CodeConflict, "not known")}
	for _, c := range []struct {
		args    string
		answers []error
		code    int
		words   string
	}{
		{"signal KILL 12", nil, console.ExitUsage, "berth cancel"},
		{"signal 9 12", nil, console.ExitUsage, "berth cancel"},
		{"signal NOPE 12", nil, console.ExitUsage, "unknown; want a name"},
		{"signal 65 12", nil, console.ExitUsage, "unknown; want a name"},
		{"signal 0 12", nil, console.ExitUsage, "unknown; want a name"},
		{"signal USR1", nil, console.ExitUsage, "job id is missing"},
		{"signal --first --all USR1 12", nil, console.ExitUsage, "only one of them"},
		{"signal USR1 12", []error{clitest.Refuse(cluster.CodeDenied, "another user's")}, console.ExitFailed, "another user's"},
		{"signal USR1 12", lost, console.ExitUnknown, "not known"},
		{"scancel -s USR1 12", []error{clitest.Refuse(cluster.CodeConflict, "does not run")}, console.ExitFailed, "scancel: error: Kill job error on job id 12: "},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			a := w.ServeAttach("/a", clitest.NewFake(), func(_ *apiv1.AttachOpen, s clitest.AttachEnd) error {
				err := c.answers[0]
				c.answers = c.answers[1:]
				return err
			})
			want := len(c.answers)
			if code := w.Run(strings.Fields(c.args)...); code != c.code || !strings.Contains(w.Errs.String(), c.words) || len(a.Opens) != want {
				t.Errorf("exit code %d after %d streams: %q, want %d", code, len(a.Opens), w.Errs.String(), c.code)
			}
		})
	}
}
