package learned

import (
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/command"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// MaxImport bounds the runs of one import: a quarter of what is kept, so that what
// was learned here stays.
const MaxImport = maxSamples / 4

// importRuns keeps samples of runs under another scheduler. One impossible run
// refuses all: they come from one file, and a partial import would be repeated.
func (l *Store) importRuns(at command.Entry, c *logv1.ImportRuns) command.Result {
	if n := len(c.Samples); n == 0 || n > MaxImport {
		return command.Refuse(cluster.CodeInvalid, "%d runs, want 1 to %d", n, MaxImport)
	}
	for i, m := range c.Samples {
		if !possible(m) {
			return command.Refuse(cluster.CodeInvalid, "run %d: no run can have these figures", i+1)
		}
	}
	for _, m := range c.Samples {
		l.seq++
		x := Sample{
			Seq: l.seq, Signature: m.Signature, GPUType: m.GpuType, UID: cluster.UID(m.Uid), At: at.Now,
			GPUMemPeakMiB: m.GpuMemPeakMib, Milli: m.Milli, HostMemMiB: m.HostMemMib, CPUMilli: m.CpuMilli,
			Duration: time.Duration(m.DurationUs) * time.Microsecond,
		}
		l.share(&x)
		l.samples = append(l.samples, x)
		l.digests.samples.Touch(x.Seq)
		l.boundSamples(&x)
	}
	return command.Result{}
}

// possible reports whether a run can have had these figures.
func possible(m *logv1.Sample) bool {
	for _, v := range []struct{ got, most int64 }{
		{m.GpuMemPeakMib, cluster.MaxMemMiB}, {m.Milli, cluster.WholeGPU}, {m.HostMemMib, cluster.MaxMemMiB},
		{m.CpuMilli, maxCPUMilli}, {m.DurationUs, longestRun.Microseconds()},
	} {
		if v.got < 0 || v.got > v.most {
			return false
		}
	}
	return m.Signature != "" && len(m.Signature) <= cluster.MaxNameLen && m.GpuType != "" && len(m.GpuType) <= cluster.MaxNameLen
}
