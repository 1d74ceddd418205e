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
		"scontrol suspend 12": "scontrol: error: jobs cannot be suspended", "scontrol write batch_script 12": "scontrol: error: scripts cannot be retrieved",
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

// TestScontrolShowsTheTopology: the switches that nodes' features say, as Slurm's
// topology/tree lists them.
func TestScontrolShowsTheTopology(t *testing.T) {
	t.Parallel()
	const (
		leaf1, leaf2 = "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n", "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n3\n"
		core         = "SwitchName=core Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=leaf[1-2]\n"
	)
	for line, want := range map[string]string{
		"scontrol show topology": leaf1 + leaf2 + core, "scontrol show topo n3": leaf2 + core, "scontrol show topology leaf1": leaf1,
		"scontrol show topology nosuch": "Topology information contains no switch or node named nosuch\n", "none": "scontrol: error: no topology information available: no node names a switch\n",
	} {
		w := clitest.NewWorld(t)
		p := clitest.NewParted()
		for i, path := range []string{"core:leaf1", "core:leaf1", "core:leaf2"} {
			if line != "none" {
				at := map[int]int{0: 1, 1: 0, 2: 2}[i] // n2, n1 and n3, in this order
				p.Nodes[at].Features = append(p.Nodes[at].Features, "switch="+path)
			}
		}
		w.ServeParted("/a", p)
		if line == "none" {
			line = "scontrol show topology"
		}
		w.Run(strings.Fields(line)...)
		if got := w.Out.String() + w.Errs.String(); got != want {
			t.Errorf("%s: want %q, got %q", line, want, got)
		}
	}
}
