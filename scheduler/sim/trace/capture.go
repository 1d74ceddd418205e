package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// CaptureFormat is the format written; others are refused.
const CaptureFormat = "berth-capture/1"

// Capture is a cluster at one time: its nodes, and the jobs that it kept, with
// their predictions and measurements.
type Capture struct {
	Format  string        `json:"format"`
	Cluster string        `json:"cluster"`
	Taken   time.Time     `json:"taken"`
	Policy  CapturePolicy `json:"policy"`
	Nodes   []CaptureNode `json:"nodes"`
	Jobs    []CaptureJob  `json:"jobs"`
}

// CapturePolicy is the cluster's policy; empty if unknown.
type CapturePolicy struct {
	Mode      string `json:"mode,omitempty"`
	MaxShares int    `json:"max_shares,omitempty"`
}

// CaptureNode is a machine.
type CaptureNode struct {
	ID       string       `json:"id"`
	State    string       `json:"state"`
	CPUMilli int64        `json:"cpu_milli"`
	MemMiB   int64        `json:"mem_mib"`
	GPUs     []CaptureGPU `json:"gpus"`
}

// CaptureGPU is a GPU.
type CaptureGPU struct {
	Type        string `json:"type"`
	MemMiB      int64  `json:"mem_mib"`
	SellableMiB int64  `json:"sellable_mib"`
	MaxShares   int    `json:"max_shares"`
}

// CaptureJob is a job. Nil times have not come yet.
type CaptureJob struct {
	ID          uint64     `json:"id"`
	Name        string     `json:"name,omitempty"`
	User        string     `json:"user,omitempty"`
	State       string     `json:"state"`
	Finished    bool       `json:"finished"`
	GPUs        int        `json:"gpus"`
	Exclusive   bool       `json:"exclusive,omitempty"`
	GPUType     string     `json:"gpu_type,omitempty"`
	CPUMilli    int64      `json:"cpu_milli,omitempty"`
	MemMiB      int64      `json:"mem_mib,omitempty"`
	Submitted   *time.Time `json:"submitted"`
	FirstStart  *time.Time `json:"first_start,omitempty"`
	Started     *time.Time `json:"started,omitempty"`
	Ended       *time.Time `json:"ended,omitempty"`
	Deadline    *time.Time `json:"deadline,omitempty"`
	TimeLimitS  float64    `json:"time_limit_s,omitempty"`
	Neighbours  int        `json:"neighbours,omitempty"`
	RanOn       string     `json:"ran_on,omitempty"`
	Predictions []Forecast `json:"predictions,omitempty"`
	Measured    *Measured  `json:"measured,omitempty"`
	Held        *Held      `json:"held,omitempty"`
}

// Held is what the attempts of a job held over their time: compute in seconds of a
// whole GPU, the part of it that was busy, and memory in MiB times seconds.
type Held struct {
	GPUSeconds  float64 `json:"gpu_s"`
	BusySeconds float64 `json:"busy_s"`
	MiBSeconds  float64 `json:"mib_s"`
}

// Forecast is the cluster's prediction for a job on one type of GPU.
type Forecast struct {
	GPUType         string  `json:"gpu_type"`
	GPUMemMiB       int64   `json:"gpu_mem_mib"`
	GPUMemP95MiB    int64   `json:"gpu_mem_p95_mib"`
	GPUUtilMilli    int64   `json:"gpu_util_milli"`
	Seconds         float64 `json:"seconds"`
	HostMemMiB      int64   `json:"host_mem_mib,omitempty"`
	CPUMilli        int64   `json:"cpu_milli,omitempty"`
	PowerW          int64   `json:"power_w,omitempty"`
	ConfidenceMilli int64   `json:"confidence_milli"`
	Source          string  `json:"source"`
	// TimeConfidenceMilli is 0 if the time is as certain as the rest.
	TimeConfidenceMilli int64 `json:"time_confidence_milli,omitempty"`
}

// Measured is what an ended job took.
type Measured struct {
	GPUMemMiB    int64   `json:"gpu_mem_mib"`
	GPUUtilMilli int64   `json:"gpu_util_milli"`
	Seconds      float64 `json:"seconds"`
}

// Limits of a capture.
const (
	maxCaptureBytes = 1 << 30
	maxCaptureJobs  = 2_000_000
)

// ReadCapture reads a capture, compressed or not. Unknown keys and other
// formats are errors.
func ReadCapture(r io.Reader) (*Capture, error) {
	u, err := unpackLines(r, math.MaxInt)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(io.LimitReader(u, maxCaptureBytes))
	d.DisallowUnknownFields()
	var c Capture
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("not a capture: %w", err)
	}
	if c.Format != CaptureFormat {
		return nil, fmt.Errorf("format: %.40q is not %q; take the capture with the same version of berth", c.Format, CaptureFormat)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a capture: something follows its end")
	}
	return &c, c.check()
}

func (c *Capture) check() error {
	if len(c.Jobs) > maxCaptureJobs || len(c.Nodes) > 100_000 {
		return fmt.Errorf("%d jobs on %d nodes, at most %d and 100000 are read", len(c.Jobs), len(c.Nodes), maxCaptureJobs)
	}
	if y := c.Taken.Year(); y < 1980 || y > 2200 {
		return fmt.Errorf("taken: year %d is outside 1980 to 2200", y)
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.CPUMilli < 0 || n.MemMiB < 0 || len(n.GPUs) > 4096 {
			return fmt.Errorf("nodes[%d] %.40q: an amount is out of range", i, n.ID)
		}
		for _, g := range n.GPUs {
			if g.MemMiB < 0 || g.MemMiB > cluster.MaxMemMiB || g.SellableMiB < 0 || g.SellableMiB > g.MemMiB || g.MaxShares < 0 || g.MaxShares > 1024 {
				return fmt.Errorf("nodes[%d] %.40q: a GPU of %d MiB with %d to give away and %d shares", i, n.ID, g.MemMiB, g.SellableMiB, g.MaxShares)
			}
		}
	}
	return nil
}

// Fleet returns the cluster of a capture: nodes that were drained or away count,
// since policies are compared rather than an outage repeated.
func (c *Capture) Fleet() workload.Fleet {
	f := workload.Fleet{Name: c.Cluster}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		s := workload.NodeSpec{Count: 1, GPUs: len(n.GPUs), CPUMilli: n.CPUMilli, HostMemMiB: n.MemMiB}
		if len(n.GPUs) > 0 {
			g := n.GPUs[0]
			s.GPUType, s.MemMiB, s.MaxShares = g.Type, g.MemMiB, g.MaxShares
			f.ReservedMiB = max(f.ReservedMiB, g.MemMiB-g.SellableMiB)
		}
		if k := len(f.Nodes) - 1; k >= 0 {
			last := f.Nodes[k]
			last.Count = 1
			if last == s {
				f.Nodes[k].Count++
				continue
			}
		}
		f.Nodes = append(f.Nodes, s)
	}
	return f
}

// Actual is when a job of a capture really first began and ended, since the first
// submission, and what it held, nil if the capture does not say.
type Actual struct {
	Submit, Start, End time.Duration
	Held               *Held
}

// CaptureOptions select the jobs of a capture.
type CaptureOptions struct {
	// Last takes only jobs that ended in so long a time before the capture; 0 takes
	// all jobs, also waiting and running ones.
	Last   time.Duration
	Strict bool
}

// Workload makes jobs from a capture. Those that ended take as long as they did,
// those that run or wait as long as predicted, or as they already ran. The second
// result has what really happened to those that ended well, in the order of the
// jobs' ids.
func (c *Capture) Workload(o CaptureOptions) (*workload.Workload, []Actual, Report, error) {
	w := &workload.Workload{Name: "capture", Form: "capture", Notes: captureNotes()}
	var rep Report
	var actual []Actual
	first, err := c.first(o)
	if err != nil {
		return nil, nil, rep, err
	}
	seen := map[uint64]bool{}
	for i := range c.Jobs {
		j := &c.Jobs[i]
		rep.Rows++
		out, err := c.job(j, o, first)
		if err == nil && seen[j.ID] {
			err = fmt.Errorf("id %d: is there twice", j.ID)
		}
		if err != nil {
			if o.Strict && !errors.Is(err, errSkip) {
				return nil, nil, rep, fmt.Errorf("jobs[%d]: %w", i, err)
			}
			rep.Skip("capture", i+1, err.Error())
			continue
		}
		seen[j.ID] = true
		out.Row = i + 1
		w.Jobs = append(w.Jobs, out)
		if j.Finished && j.Ended != nil && j.FirstStart != nil {
			actual = append(actual, Actual{out.Submit, j.FirstStart.Sub(first), j.Ended.Sub(first), j.Held})
		}
	}
	rep.Jobs = len(w.Jobs)
	if rep.Jobs == 0 {
		return nil, nil, rep, fmt.Errorf("no job of the capture ran in the time asked for; it holds %d jobs", len(c.Jobs))
	}
	return w, actual, rep, nil
}

func captureNotes() []string {
	return []string{
		"jobs take as long as they did, which includes what neighbours cost them then; those that had not ended take as long as predicted",
		"predictions are those that the cluster made, at the time of each job",
	}
}

// taken reports whether a job is in the selected time.
func (c *Capture) taken(j *CaptureJob, o CaptureOptions) bool {
	return o.Last == 0 || j.Finished && j.Ended != nil && c.Taken.Sub(*j.Ended) <= o.Last
}

// first returns the first submission of the selected jobs.
func (c *Capture) first(o CaptureOptions) (time.Time, error) {
	var first time.Time
	for i := range c.Jobs {
		if j := &c.Jobs[i]; c.taken(j, o) && j.Submitted != nil && (first.IsZero() || j.Submitted.Before(first)) {
			first = *j.Submitted
		}
	}
	if first.IsZero() {
		return first, fmt.Errorf("no job of the capture ended in the time asked for; it holds %d jobs", len(c.Jobs))
	}
	return first, nil
}

func (c *Capture) job(j *CaptureJob, o CaptureOptions, first time.Time) (workload.Job, error) {
	out := workload.Job{ID: strconv.FormatUint(j.ID, 10), User: j.User, GPUs: j.GPUs, CPUMilli: j.CPUMilli, HostMemMiB: j.MemMiB}
	switch {
	case !c.taken(j, o):
		return out, fmt.Errorf("job %d: did not end in the time asked for: %w", j.ID, errSkip)
	case j.Submitted == nil:
		return out, fmt.Errorf("job %d: submitted: is missing", j.ID)
	case j.Finished && (j.Started == nil || j.Ended == nil):
		return out, fmt.Errorf("job %d: ended without having run: %w", j.ID, errSkip)
	case j.GPUs < 0 || j.GPUs > 1<<16 || j.CPUMilli < 0 || j.MemMiB < 0:
		return out, fmt.Errorf("job %d: %d GPUs, %d mCPU or %d MiB is out of range", j.ID, j.GPUs, j.CPUMilli, j.MemMiB)
	}
	out.Submit = j.Submitted.Sub(first)
	if j.GPUType != "" {
		out.Types = []string{j.GPUType}
	}
	if j.Exclusive {
		out.Milli = 1000
	}
	if j.Deadline != nil {
		out.Deadline = max(0, j.Deadline.Sub(first))
	}
	if err := c.truth(j, &out); err != nil {
		return out, err
	}
	for _, p := range j.Predictions {
		if !(p.Seconds >= 0 && p.Seconds < maxSpan) || p.GPUMemMiB < 0 || p.GPUMemMiB > cluster.MaxMemMiB || p.GPUMemP95MiB < 0 || p.GPUMemP95MiB > cluster.MaxMemMiB ||
			p.GPUUtilMilli < 0 || p.GPUUtilMilli > 1000 || p.ConfidenceMilli < 0 || p.ConfidenceMilli > 1000 || p.TimeConfidenceMilli < 0 || p.TimeConfidenceMilli > 1000 {
			return out, fmt.Errorf("job %d: predictions: a figure for %.40q is out of range", j.ID, p.GPUType)
		}
		out.Predicted = append(out.Predicted, cluster.Estimate{
			GPUType: p.GPUType, GPUMemMiB: p.GPUMemMiB, GPUMemP95MiB: p.GPUMemP95MiB, Milli: p.GPUUtilMilli, Duration: seconds(p.Seconds),
			HostMemMiB: p.HostMemMiB, CPUMilli: p.CPUMilli, PowerW: p.PowerW, ConfidenceMilli: p.ConfidenceMilli, Source: p.Source, TimeConfidenceMilli: p.TimeConfidenceMilli,
		})
	}
	slices.SortFunc(out.Predicted, func(a, b cluster.Estimate) int { return strings.Compare(a.GPUType, b.GPUType) })
	return out, nil
}

// truth fills in what is true of a job: measured if it ended, predicted if not.
func (c *Capture) truth(j *CaptureJob, out *workload.Job) error {
	for _, p := range j.Predictions {
		if out.Duration < seconds(p.Seconds) && (j.RanOn == "" || j.RanOn == p.GPUType) {
			out.Duration, out.MemMiB, out.UsedMilli = seconds(p.Seconds), p.GPUMemMiB, p.GPUUtilMilli
		}
	}
	if j.Started != nil {
		end := c.Taken
		if j.Ended != nil {
			end, out.Duration = *j.Ended, 0
		}
		out.Duration = max(out.Duration, end.Sub(*j.Started))
	}
	if m := j.Measured; m != nil && j.Finished {
		if !(m.Seconds >= 0 && m.Seconds < maxSpan) || m.GPUMemMiB < 0 || m.GPUMemMiB > cluster.MaxMemMiB || m.GPUUtilMilli < 0 {
			return fmt.Errorf("job %d: measured: a figure is out of range", j.ID)
		}
		if m.Seconds > 0 {
			out.Duration = seconds(m.Seconds)
		}
		out.MemMiB, out.UsedMilli = m.GPUMemMiB, min(1000, m.GPUUtilMilli)
	}
	if out.Submit < 0 || out.Duration <= 0 || out.Duration > seconds(maxSpan) {
		return fmt.Errorf("job %d: runs for %s: %w", j.ID, out.Duration, errSkip)
	}
	return nil
}

func seconds(s float64) time.Duration {
	return time.Duration(math.Round(s*1e6)) * time.Microsecond
}
