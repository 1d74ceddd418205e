package slurmcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestSlurmGolden holds what users of Slurm's commands see, word for word.
func TestSlurmGolden(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"squeue":             "squeue",
		"squeue-me":          "squeue --me -h",
		"squeue-long":        "squeue -l",
		"squeue-start":       "squeue --start",
		"squeue-format":      "squeue -h -t all -o %i|%j|%u|%T|%M|%l|%R|%b|%Z -S -i",
		"squeue-fields":      "squeue -O jobid:6,state:.12,nodelist,tres-per-node -j 12,14",
		"squeue-missing":     "squeue -j 99",
		"squeue-state":       "squeue -t NOSUCH",
		"squeue-option":      "squeue --nosuch",
		"squeue-short":       "squeue -k",
		"sinfo":              "sinfo",
		"sinfo-each":         "sinfo -N -l",
		"sinfo-reasons":      "sinfo -R",
		"sinfo-gres":         "sinfo -h -N -o %N|%G|%C|%t|%m",
		"scancel":            "scancel 12",
		"scancel-verbose":    "scancel -v -u ann -t PENDING",
		"scancel-none":       "scancel",
		"scancel-word":       "scancel abc",
		"scancel-missing":    "scancel 99",
		"scancel-quiet":      "scancel -Q 99",
		"scancel-signal":     "scancel -s NOPE 12",
		"scontrol-job":       "scontrol show job 12",
		"scontrol-waiting":   "scontrol -o show job 14",
		"scontrol-job99":     "scontrol show job 99",
		"scontrol-node":      "scontrol show node n1",
		"scontrol-node9":     "scontrol show node n9",
		"scontrol-partition": "scontrol show partition gpu",
		"scontrol-part9":     "scontrol show partition nosuch",
		"scontrol-hostnames": "scontrol show hostnames n[1-3,07],c1",
		"scontrol-hostlist":  "scontrol show hostlist n1,n2,n3,n5",
		"scontrol-drain":     "scontrol update nodename=n1 state=drain reason=Xid",
		"scontrol-noreason":  "scontrol update nodename=n1 state=drain",
		"scontrol-update":    "scontrol update jobid=3 nosuch=1",
		"scontrol-ping":      "scontrol ping",
		"scontrol-hold":      "scontrol hold 12 13,99 16",
		"scontrol-holdwhat":  "scontrol hold",
		"scontrol-uhold":     "scontrol uhold abc",
		"scontrol-release":   "scontrol release jobid=14",
		"scontrol-requeue":   "scontrol requeue 12,13 14 16 99",
		"scontrol-word":      "scontrol nosuch",
		"sacct":              "sacct -a -S 2020-01-01",
		"sacct-parsable":     "sacct -j 16 -P -o JobID,State,ExitCode,Elapsed,MaxRSS,NodeList",
		"sacct-field":        "sacct -j 16 -o nosuch",
		"squeue-json":        "squeue --json -j 12,14",
		"sinfo-json":         "sinfo --json -n n1",
		"sacct-json":         "sacct --json -j 16",
		"sacct-time":         "sacct -S yesterdayish",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.ServeParted("/a", clitest.NewParted())
			golden.Check(t, "slurm-"+name, w.Transcript(strings.Fields(line)...))
		})
	}
}
