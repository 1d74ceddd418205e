package slurmcmd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestSacctListsAddUp: lists of sacct that are given twice are one, as with Slurm,
// and fields with nothing between commas are passed over.
func TestSacctListsAddUp(t *testing.T) {
	t.Parallel()
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewPast())
	run := func(line string) string {
		t.Helper()
		if code := w.Run(strings.Fields("sacct -S 2026-03-01 -n -P " + line)...); code != 0 {
			t.Errorf("sacct %s: exit code %d: %s", line, code, w.Errs.String())
		}
		return w.Out.String()
	}
	for _, pair := range [][2]string{
		{"-j 40 -j 41 -o JobID", "-j 40,41 -o JobID"},
		{"-j 40 --jobs=41 --jobs 42_2 -o JobID", "-j 40,41,42_2 -o JobID"},
		{"-j 40,41 -o JobID -o State --format=ExitCode", "-j 40,41 -o JobID,State,ExitCode"},
		{"-j 40,41 -o JobID,,State,", "-j 40,41 -o JobID,State"},
		{"-a -s F -s CA -o JobID", "-a -s F,CA -o JobID"},
		{"-a -A vision -A speech -o JobID", "-a -A vision,speech -o JobID"},
		{"-u ann -u bob -o JobID", "-u ann,bob -o JobID"},
		{"-u ann --uid bob -o JobID", "-u ann,bob -o JobID"},
		{"-a --name train --name eval -o JobID", "-a --name train,eval -o JobID"},
		{"-a -r gpu -r all -o JobID", "-a -r gpu,all -o JobID"},
	} {
		if got, want := run(pair[0]), run(pair[1]); got != want || got == "" {
			t.Errorf("sacct %s:\n%swant that of %s:\n%s", pair[0], got, pair[1], want)
		}
	}
}

// TestSacctKnowsNoStateBetween: to the accounting a job that is about to run, or to have
// ended, runs. submitit takes any state but a few for the end of a job.
func TestSacctKnowsNoStateBetween(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"STARTING", "RUNNING", "COMPLETING"} {
		w, f := clitest.NewWorld(t), clitest.NewPast()
		f.Jobs = append(f.Jobs, &apiv1.Job{Id: 77, Name: "between", User: "ann", State: state, Submitted: clitest.Ago(time.Hour), Started: clitest.Ago(time.Minute), Node: "n1", NodeList: "n1"})
		w.Serve("/a", f)
		for _, line := range []string{"sacct -X -n -P -j 77 -o State", "sacct -X -n -P -j 77 -s R -o State"} {
			if code := w.Run(strings.Fields(line)...); code != 0 || w.Out.String() != "RUNNING\n" {
				t.Errorf("%s of %s: exit code %d: %q %s", line, state, code, w.Out.String(), w.Errs.String())
			}
		}
	}
}
