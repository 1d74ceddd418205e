package jobcmd_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestShowPreempted: what a job's owner sees while it makes room, and after.
func TestShowPreempted(t *testing.T) {
	t.Parallel()
	at := func(minute int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 3, 14, 12, minute, 0, 0, time.UTC))
	}
	spec := &apiv1.JobSpec{
		Name: "train", Command: [][]byte{[]byte("python"), []byte("train.py")}, Gpus: 1,
		CheckpointSignal: "USR1", CheckpointGrace: durationpb.New(90 * time.Second),
	}
	const why = "for job 31: it has ~6 h left, and that one ~10 min and has waited for ~2 min"
	saving := &apiv1.Job{
		Id: 30, Name: "train", User: "ada", Uid: 1000, State: "RUNNING", Reason: "Preempted", ReasonDetail: why, Node: "n1", GpusWanted: 1,
		Submitted: at(0), Started: at(1), Spec: spec,
		Attempts: []*apiv1.Attempt{{No: 1, State: "RUNNING", Node: "n1", Placed: at(1), Started: at(1), Why: "slot+las: 1 of A100"}},
	}
	waits := &apiv1.Job{
		Id: 32, Name: "train", User: "ada", Uid: 1000, State: "PENDING", Reason: "Requeued", ReasonDetail: "Preempted: " + why, GpusWanted: 1,
		Submitted: at(0), Spec: spec,
		Attempts: []*apiv1.Attempt{{No: 1, State: "PREEMPTED", Reason: "Preempted", ReasonDetail: why, Node: "n1", Placed: at(1), Started: at(1), Ended: at(40), ExitCode: new(int32(0))}},
	}
	w := clitest.NewWorld(t)
	f := clitest.NewFake()
	f.Jobs = append(f.Jobs, saving, waits)
	w.Serve("/a", f)
	golden.Check(t, "show-saving", w.Transcript("show", "30"))
	golden.Check(t, "show-preempted", w.Transcript("show", "32"))
	waits.Attempts[0].Reason, waits.Attempts[0].ReasonDetail = "Requeued", "by uid 1000"
	if got := w.Transcript("show", "32"); !strings.Contains(got, "and may be preempted\n") {
		t.Errorf("one that was requeued by hand, and never preempted, is shown as\n%s", got)
	}
}

// TestCheckpointIsAsked: by flag, in a spec file and in a script's line.
func TestCheckpointIsAsked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"USR1": "USR1@1m0s", "SIGUSR2@30": "USR2@30s", "term@10m": "TERM@10m0s", "HUP@1500ms": "HUP@1.5s",
		"KILL":      `signal "KILL" is not one of USR1, USR2, HUP, INT, TERM`,
		"10":        `signal "10" is not one of`,
		"USR1@":     `the grace "" is not a time; want seconds or a span, such as USR1@60 or USR1@2m`,
		"USR1@0":    "a grace of 0s is outside 1s to 10m",
		"USR1@11m":  "a grace of 11m is outside 1s to 10m",
		"USR1@-5s":  "a grace of -5s is outside",
		"USR1@soon": `the grace "soon" is not a time`,
		"@60":       "want SIGNAL or SIGNAL@GRACE, such as USR1@60s",
		"":          "want SIGNAL or SIGNAL@GRACE",
	} {
		for _, by := range []string{"flag", "file"} {
			r := &jobspec.Request{}
			var err error
			if by == "flag" {
				f := jobspec.Fields()
				for i := range f {
					if f[i].Name == "checkpoint" {
						r.Flags = append(r.Flags, jobspec.FlagText{F: &f[i], Text: text})
					}
				}
				err = r.ApplyFlags()
			} else {
				_, err = jobspec.ParseSpec(r, []byte("command: [x]\ncheckpoint: \""+text+"\"\n"))
			}
			got := r.Spec.Checkpoint.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, want) || err == nil && got != want {
				t.Errorf("%s %q: got %q, want %q", by, text, got, want)
			}
		}
	}
}

// FuzzCheckpoint: what is read is what its text says, and is allowed.
func FuzzCheckpoint(f *testing.F) {
	for _, s := range []string{"USR1", "SIGHUP@60", "int@1h", "USR1@9m59.5s", "@", "USR1@1e9", "USR1@@1", "\xff@1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := cluster.ParseCheckpoint(text)
		if err != nil {
			return
		}
		if err := c.Check(); err != nil || !c.Set() {
			t.Fatalf("%q is %+v: %v", text, c, err)
		}
		if again, err := cluster.ParseCheckpoint(c.String()); err != nil || again != c {
			t.Fatalf("%q is %v, which is read as %v, %v", text, c, again, err)
		}
	})
}
