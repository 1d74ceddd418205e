package learned

import (
	"fmt"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/intern"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// MaxCompany bounds Sample.Company: with the job itself it is the largest set that
// interference is predicted for.
const MaxCompany = 7

// Sample is what one finished attempt contributes to the predictor. Memory is in
// MiB; Milli is the mean utilization of each GPU in thousandths, CPUMilli the cores
// used in thousandths of one. Zero is not measured.
type Sample struct {
	Seq           uint64 // rises, without gaps among those ever taken
	Signature     string
	GPUType       string
	GPUMemPeakMiB int64
	Milli         int64
	// Duration is 0 for an attempt that did not end by itself.
	Duration   time.Duration
	HostMemMiB int64
	CPUMilli   int64
	// Censored means that the peak is a lower bound of what is needed; HostCensored
	// that HostMemMiB is, and that nothing else is known.
	Censored, HostCensored bool
	UID                    cluster.UID
	// Features are the job's, opaque here; they must not be modified.
	Features []byte
	// PowerW is the mean power of each GPU, Steps how many the attempt took.
	PowerW, Steps int64
	// Neighbours is the number of others with which the attempt shared its GPUs.
	Neighbours int
	// Company lists these neighbours, longest overlap first, at most MaxCompany; it
	// must not be modified. It is empty if one of them was no longer known, and in
	// samples of old logs. CapMode is how shares of the GPU were capped.
	Company []Company
	CapMode string
	// Predicted is what was expected at placement; zero if unknown.
	Predicted cluster.Estimate
	// At is when the attempt ended; 0 in samples of old logs.
	At cluster.Time
	// Program is the job's, as Signature; "" in samples of old logs.
	Program string
	// Numbers are those of its command, as in cluster.Spec; "" in samples of old logs.
	Numbers string
	// Driver is the version of the driver that it ran under; "" is unknown.
	Driver string
}

// Company is the jobs of one signature that an attempt shared its GPUs with.
type Company struct {
	Signature string
	// Overlap is the time that they shared, summed over these jobs.
	Overlap time.Duration
	// Milli is the utilization by which the last of them was placed.
	Milli int64
}

func (x *Sample) record() *logv1.Sample {
	m := &logv1.Sample{
		Seq: x.Seq, Signature: x.Signature, GpuType: x.GPUType, GpuMemPeakMib: x.GPUMemPeakMiB, Milli: x.Milli,
		DurationUs: x.Duration.Microseconds(), HostMemMib: x.HostMemMiB, CpuMilli: x.CPUMilli, Censored: x.Censored, HostCensored: x.HostCensored,
		Uid: uint32(x.UID), Features: x.Features, PowerW: x.PowerW, Steps: x.Steps, Neighbours: uint32(x.Neighbours), AtUs: int64(x.At),
		CapMode: x.CapMode, Program: x.Program, Numbers: x.Numbers, Driver: x.Driver,
	}
	if x.Predicted != (cluster.Estimate{}) {
		m.Predicted = conv.EstimateToLog(x.Predicted)
	}
	for _, c := range x.Company {
		m.Company = append(m.Company, &logv1.Company{Signature: c.Signature, OverlapUs: c.Overlap.Microseconds(), Milli: c.Milli})
	}
	return m
}

func (l *Store) loadSample(m *logv1.Sample) error {
	if n := len(l.samples); n > 0 && l.samples[n-1].Seq >= m.Seq {
		return fmt.Errorf("sample %d is out of order", m.Seq)
	}
	x := Sample{
		Seq: m.Seq, Signature: m.Signature, GPUType: m.GpuType, GPUMemPeakMiB: m.GpuMemPeakMib, Milli: m.Milli,
		Duration: time.Duration(m.DurationUs) * time.Microsecond, HostMemMiB: m.HostMemMib, CPUMilli: m.CpuMilli,
		Censored: m.Censored, HostCensored: m.HostCensored, UID: cluster.UID(m.Uid), Features: m.Features, PowerW: m.PowerW, Steps: m.Steps,
		Neighbours: int(min(m.Neighbours, cluster.MaxNeighbours)), Predicted: conv.EstimateFromLog(m.Predicted), At: cluster.Time(m.AtUs),
		CapMode: m.CapMode, Program: m.Program, Numbers: m.Numbers, Driver: m.Driver,
	}
	if len(m.Company) > MaxCompany {
		return fmt.Errorf("sample %d has company of %d kinds, at most %d are kept", m.Seq, len(m.Company), MaxCompany)
	}
	for _, c := range m.Company {
		x.Company = append(x.Company, Company{Signature: c.Signature, Overlap: time.Duration(c.OverlapUs) * time.Microsecond, Milli: c.Milli})
	}
	l.share(&x)
	l.samples = append(l.samples, x)
	l.digests.samples.Touch(x.Seq)
	return nil
}

// share makes a new or restored sample share what it can.
func (l *Store) share(x *Sample) {
	intern.Share(l.texts, &x.Signature)
	intern.Share(l.texts, &x.Program)
	intern.Share(l.texts, &x.Numbers)
	intern.Share(l.texts, &x.GPUType)
	intern.Share(l.texts, &x.CapMode)
	intern.Share(l.texts, &x.Driver)
	for i := range x.Company {
		intern.Share(l.texts, &x.Company[i].Signature)
	}
}
