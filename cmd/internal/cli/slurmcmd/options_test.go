package slurmcmd_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestEveryManPageOption runs the commands with each option of their man pages: it
// is done, or refused with what to do instead, and never unknown.
func TestEveryManPageOption(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/manpages.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, "#") || len(f) != 3 || f[1] == "-i" || f[1] == "--iterate" {
			continue
		}
		args := []string{f[0], f[1]}
		if f[2] != "-" {
			args = append(args, f[2])
		}
		switch {
		case f[0] == "scontrol":
			args = append(args, "show", "job", "12")
		case f[0] == "scancel" && f[1] != "--jobname":
			args = append(args, "12")
		case f[1] == "-K" || f[1] == "--timelimit-max":
			args = append(args, "-k", "30")
		}
		w := clitest.NewWorld(t)
		w.ServeParted("/a", clitest.NewParted())
		code, errs := w.Run(args...), w.Errs.String()
		for _, bad := range []string{"unrecognized", "invalid option", "unknown", "Usage:"} {
			if strings.Contains(errs, bad) {
				t.Errorf("%s: %s", strings.Join(args, " "), errs)
			}
		}
		asked := strings.Contains(errs, "does not know this request") // of the fake, which has neither reservations nor signals
		if code != 0 && !asked && !strings.Contains(errs, ": error: --") {
			t.Errorf("%s: exit code %d, and no word of why it is refused: %s", strings.Join(args, " "), code, errs)
		}
	}
}

// TestShortenedOptions: long options may be shortened as getopt has it.
func TestShortenedOptions(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.ServeParted("/a", clitest.NewParted())
	for line, want := range map[string]string{
		"squeue --noh --state R --job 12 -o %i":      "12\n",
		"squeue --nohead --job=12,14 --sort=i -o %i": "12\n14\n",
		"squeue -hj 12 -o%i":                         "12\n",
		"squeue -h -o %i -n train -j":                "12\n",
		"squeue -h -o %i -j --name train":            "12\n",
		"sinfo -h -o %N --part debug --state mix":    "n1\n",
	} {
		code := w.Run(strings.Fields(line)...)
		if code != 0 || w.Out.String() != want {
			t.Errorf("%s: exit code %d: %q, want %q; %s", line, code, w.Out.String(), want, w.Errs.String())
		}
	}
}

// TestOptionVariables: what users set for all their commands counts, unless they
// say otherwise.
func TestOptionVariables(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ env, line, want string }{
		{"SQUEUE_FORMAT=%i/%t", "squeue -h --me", "14/PD\n12/R\n"},
		{"SQUEUE_FORMAT=%i SQUEUE_FORMAT2=state:", "squeue -h --me", "14\n12\n"},
		{"SQUEUE_FORMAT2=jobid:,state:.9", "squeue -h --me", "14  PENDING\n12  RUNNING\n"},
		{"SQUEUE_FORMAT=%i", "squeue -h --me -o %t", "PD\nR\n"},
		{"SQUEUE_FORMAT=%i", "squeue -h --me -O statecompact:", "PD\nR\n"},
		{"SQUEUE_STATES=PD", "squeue -h --me -o %i", "14\n"},
		{"SQUEUE_STATES=PD", "squeue -h --me -o %i -t R", "12\n"},
		{"SQUEUE_SORT=-i", "squeue -h --me -o %i", "14\n12\n"},
		{"SQUEUE_USERS=bob", "squeue -h -o %i", "13\n"},
		{"SQUEUE_NAMES=eval", "squeue -h -o %i", "14\n"},
		{"SQUEUE_LICENSES=matlab", "squeue -h -o %i", ""},
		{"SINFO_FORMAT=%N/%t SINFO_PARTITION=gpu SINFO_SORT=-N", "sinfo -h -t mix,drng", "n2/drng\nn1/mix\n"},
		{"SINFO_FORMAT=%n", "sinfo -h -p debug -n n1 -o %N", "n1\n"},
		{"SACCT_FORMAT=jobid%4,state%4", "sacct -X -n -j 16", "  16 FAI+ \n"},
		{"SACCT_FORMAT=jobid", "sacct -X -nP -j 16 -o state", "FAILED\n"},
		{"SACCT_FORMAT=jobid", "sacct -X -nPb -j 16", "16|FAILED|5:0\n"},
		{"SLURM_TIME_FORMAT=%s", "squeue -h -j 12 -o %V", "1773493766\n"},
		{"SLURM_TIME_FORMAT=relative", "squeue -h -j 12,13 -S i -o %V", "13:09:26\n12 Mar 13:09\n"},
		{"SLURM_TIME_FORMAT=%y%m%d", "sacct -X -nPj 16 -o Start,End", "260314|260314\n"},
		{"SLURM_TIME_FORMAT=standard", "squeue -h -j 12 -o %V", "2026-03-14T13:09:26\n"},
	} {
		w := clitest.NewWorld(t)
		for _, v := range strings.Fields(tc.env) {
			name, value, _ := strings.Cut(v, "=")
			w.Vars[name] = value
		}
		w.ServeParted("/a", clitest.NewParted())
		if code := w.Run(strings.Fields(tc.line)...); code != 0 || w.Out.String() != tc.want {
			t.Errorf("%s %s: exit code %d: %q, want %q; %s", tc.env, tc.line, code, w.Out.String(), tc.want, w.Errs.String())
		}
	}
}

// TestJobsAreChosen by what squeue and scancel may choose by.
func TestJobsAreChosen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ line, want string }{
		{"squeue -h -o %i -A vision", "77\n"}, {"squeue -h -o %i -q high", "77\n"}, {"squeue -h -o %i -R course", "77\n"},
		{"squeue -h -o %i -w n2 -t all", "13\n77\n"}, {"squeue -h -o %i -w n[2,9]", "squeue: error: Invalid node name n9\n"},
		{"squeue -h -o %i -M berth -j 12", "12\n"}, {"squeue -o %i -M berth -j 12", "CLUSTER: berth\nJOBID\n12\n"}, {"squeue -h -M far", "squeue: error: 'far' can't be reached now, or it is an invalid entry for --cluster.  Use 'sacctmgr list clusters' to see available clusters.\n"},
		{"squeue -h -O minmemory:,partition:|,jobid:.4#, -j 12 --noconvert", "8192Mall|  12#\n"},
		{"squeue -t RD,RF,RH,RS,RV,SI,SO -h", ""},
		{"squeue -s", "squeue: error: --steps: steps are not listed: they belong to the srun that runs them; see berth show JOB\n"},
	} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "two", User: "ann", State: "RUNNING", Account: "vision", Qos: "high", Node: "n1", NodeList: "n1,n2", NodesWanted: 2,
			Submitted: clitest.Ago(time.Hour), Started: clitest.Ago(time.Hour), Spec: &apiv1.JobSpec{Name: "two", Where: &apiv1.Where{Reservation: "course"}}})
		w.Serve("/a", f)
		w.Run(strings.Fields(tc.line)...)
		if got := w.Out.String() + w.Errs.String(); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.line, got, tc.want)
		}
	}
	for line, want := range map[string]string{"scancel -A vision": "77", "scancel -q high -t R": "77", "scancel -R course": "77", "scancel -w n2 -u ann": "77", "scancel --wckey=x": "", "scancel -i 12 77": "77"} {
		w, f := clitest.NewWorld(t), clitest.NewFake()
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "two", User: "ann", State: "RUNNING", Account: "vision", Qos: "high", Node: "n1", NodeList: "n1,n2", NodesWanted: 2,
			Spec: &apiv1.JobSpec{Name: "two", Where: &apiv1.Where{Reservation: "course"}}})
		w.Env.Stdin = strings.NewReader("n\nwhat\ny\n")
		w.Serve("/a", f)
		code := w.Run(strings.Fields(line)...)
		got := ""
		for _, id := range f.Cancelled {
			got += string(rune('0'+id/10)) + string(rune('0'+id%10))
		}
		if code != 0 || got != want {
			t.Errorf("%s: exit code %d, cancels %q, want %q: %s", line, code, got, want, w.Errs.String())
		}
	}
}

// TestIterate: the table comes again, under its date, until somebody has seen enough.
func TestIterate(t *testing.T) {
	for _, line := range []string{"squeue -i 2 -j 12 -o %i", "sinfo --iterate=2 -p debug -o %N"} {
		synctest.Test(t, func(t *testing.T) {
			w := clitest.NewWorld(t)
			w.ServeParted("/a", clitest.NewParted())
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			w.RunCtx(ctx, strings.Fields(line)...)
			if n := strings.Count(w.Out.String(), "Sat Mar 14 15:09:26 2026\n"); n != 3 {
				t.Errorf("%s: %d tables in 5 s, want 3:\n%s", line, n, w.Out.String())
			}
		})
	}
	w := clitest.NewWorld(t)
	if code := w.Run("squeue", "-i", "0"); code != 1 || w.Errs.String() != "squeue: error: --iterate=0\n" {
		t.Errorf("-i 0: exit code %d: %s", code, w.Errs.String())
	}
}
