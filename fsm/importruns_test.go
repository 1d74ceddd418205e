package fsm

import (
	"fmt"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

func importCmd(samples ...*logv1.Sample) *logv1.Command {
	return &logv1.Command{Kind: &logv1.Command_ImportRuns{ImportRuns: &logv1.ImportRuns{Samples: samples, By: 1}}}
}

func pastRun(i int) *logv1.Sample {
	return &logv1.Sample{Signature: fmt.Sprintf("kin%d", i), GpuType: "A100", Uid: uint32(i), GpuMemPeakMib: 100, Milli: 300, DurationUs: 5e6, HostMemMib: 7, CpuMilli: 1500}
}

func TestImportRuns(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(importCmd(pastRun(1), pastRun(2)))
	f := m.f
	got := f.Samples()
	if len(got) != 2 || got[0].Seq != 1 || got[1].Signature != "kin2" || got[1].Duration.Seconds() != 5 || got[1].UID != 2 || got[1].At != f.Now() || got[1].CPUMilli != 1500 {
		t.Errorf("%+v", got)
	}
	many := make([]*logv1.Sample, MaxImport+1)
	for i := range many {
		many[i] = pastRun(i)
	}
	for name, c := range map[string]*logv1.Command{
		"none":      importCmd(),
		"too many":  importCmd(many...),
		"a minus":   importCmd(pastRun(1), &logv1.Sample{Signature: "x", GpuType: "A100", Milli: -1}),
		"too long":  importCmd(&logv1.Sample{Signature: "x", GpuType: "A100", DurationUs: longestRun.Microseconds() + 1}),
		"nameless":  importCmd(&logv1.Sample{GpuType: "A100"}),
		"of no GPU": importCmd(&logv1.Sample{Signature: "x"}),
	} {
		if err := m.refused(cluster.CodeInvalid, c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if n := len(f.Samples()); n != 2 {
		t.Errorf("%d samples after refusals", n)
	}
	m.must(importCmd(many[:MaxImport]...))
	if n := len(f.Samples()); n != MaxImport+2 {
		t.Errorf("%d samples", n)
	}
	if NeedsVersion(importCmd(pastRun(1))) != 9 {
		t.Error("older coordinators would stop at it")
	}
}
