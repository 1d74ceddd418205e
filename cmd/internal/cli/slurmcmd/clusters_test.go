package slurmcmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestNamedCluster: clients that name the cluster read its name in the answers.
func TestNamedCluster(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"sbatch -M berth --wrap true": " on cluster berth\n", "sbatch --clusters=berth --parsable --wrap true": ";berth\n",
		"sinfo -M berth -o %P": "CLUSTER: berth\nPARTITION\n",
	} {
		w := clitest.NewWorld(t)
		w.ServeParted("/a", clitest.NewParted())
		if code := w.Run(strings.Fields(line)...); code != 0 || w.Errs.String() != "" || !strings.HasSuffix(w.Out.String(), want) && !strings.HasPrefix(w.Out.String(), want) {
			t.Errorf("%s: exit code %d: %q %s", line, code, w.Out.String(), w.Errs.String())
		}
	}
}

// TestEndReasons: why a job ended is one of Slurm's words.
func TestEndReasons(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ state, reason, want string }{
		{"FAILED", "LaunchFailed", "JobLaunchFailure"}, {"FAILED", "RaisedSignal", "NonZeroExitCode"}, {"CANCELLED", "CancelledByUser", "None"},
		{"FAILED", "NonZeroExitCode", "NonZeroExitCode"}, {"TIMEOUT", "TimeLimit", "TimeLimit"}, {"PENDING", "NodeLost", "NodeLost"},
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "ended", User: "ann", State: tc.state, Reason: tc.reason, Submitted: clitest.Ago(time.Hour), Started: clitest.Ago(time.Hour), Ended: clitest.Ago(time.Minute)})
		w.Serve("/a", f)
		for _, line := range []string{"squeue -h -t all -j 77 -o %r", "squeue -h -t all -j 77 -O reason:,stdout:5"} {
			if code := w.Run(strings.Fields(line)...); code != 0 || !strings.HasPrefix(w.Out.String(), tc.want) {
				t.Errorf("%s of %s, %s: exit code %d: %q, want %s; %s", line, tc.state, tc.reason, code, w.Out.String(), tc.want, w.Errs.String())
			}
		}
	}
}
