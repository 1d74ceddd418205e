package slurmcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestScontrolWords: entities may be shortened, and what is not done here is refused
// with what to do.
func TestScontrolWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"scontrol show part": "PartitionName=debug", "scontrol show no n1": "NodeName=n1", "scontrol show j 12": "JobId=12",
		"scontrol suspend 12": "scontrol: error: running jobs are not stopped in between", "scontrol write batch_script 12": "scontrol: error: scripts are not sent back",
		"scontrol reconfigure": "scontrol: error: daemons read their settings", "scontrol show step 12.0": "scontrol: error: steps are not listed",
		"scontrol show assoc_mgr": "scontrol: error: accounts are shown", "scontrol show lic": "scontrol: error: licenses are not managed",
		"scontrol show config": "SchedulerTimeSlice      = 30 sec", "scontrol show con": "MinJobAge               = 300 sec",
		"scontrol show nosuch": "invalid entity:nosuch for keyword:show", "scontrol frob": "invalid keyword: frob",
		"scontrol sho par debug": "PartitionName=debug", "scontrol LIST": "scontrol: error: processes of jobs are not listed", "scontrol s": "invalid keyword: s",
		"scontrol req x": "Invalid job id specified for job x", "scontrol ver": "slurm-berth", "scontrol re": "invalid keyword: re", "scontrol setdebugf": "scontrol: error: logs are set",
	} {
		w := clitest.NewWorld(t)
		w.ServeParted("/a", clitest.NewParted())
		w.Run(strings.Fields(line)...)
		if got := w.Out.String() + w.Errs.String(); !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", line, want, got)
		}
	}
}
