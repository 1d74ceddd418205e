package slurm

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

// The formats of sacct without -o, with -b, and with -l.
const (
	acctFormat = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
	acctBrief  = "JobID,State,ExitCode"
	acctLong   = "JobID,JobIDRaw,JobName,Partition,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MaxPages,MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AllocCPUS,Elapsed,State,ExitCode,AveCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,ReqCPUFreqGov,ReqMem,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,MaxDiskWriteTask,AveDiskWrite,ReqTRES,AllocTRES,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutMax,TRESUsageOutMaxNode,TRESUsageOutMaxTask,TRESUsageOutAve,TRESUsageOutTot"
)

// Sacct holds the options of sacct.
type Sacct struct {
	// Format names fields, each with %WIDTH or, left-aligned, %-WIDTH; "" is
	// Slurm's default. Brief and Long select others instead.
	Format      string
	Brief, Long bool
	Layout
}

// HelpFormat lists the fields in columns, as -e does.
func HelpFormat() string { return fieldNames(acctFields, "%-19s") }

// Printer prints jobs as they come.
type Printer struct {
	a      *Sacct
	w      io.Writer
	fields []field[Job]
	begun  bool
}

// Printer checks the fields. The error names an unknown one.
func (a *Sacct) Printer(w io.Writer) (*Printer, error) {
	fields, err := a.fields()
	return &Printer{a: a, w: w, fields: fields}, err
}

// Print writes jobs as sacct does, with the heads before the first of them.
func (p *Printer) Print(jobs []Job) error {
	var b strings.Builder
	if !p.begun {
		fieldHeads(&p.a.Layout, &b, p.fields)
	}
	p.begun = true
	for i := range jobs {
		fieldLine(&p.a.Layout, &b, p.fields, func(f *field[Job]) string { return f.value(&jobs[i]) })
	}
	_, err := io.WriteString(p.w, b.String())
	return err
}

func (a *Sacct) fields() ([]field[Job], error) {
	list := cmp.Or(a.Format, acctFormat)
	switch {
	case a.Format != "":
	case a.Brief:
		list = acctBrief
	case a.Long:
		list = acctLong
	}
	return fieldsNamed(list, acctFields)
}

// Batch returns the step of a job's script, which sacct lists below the job;
// false if it has not begun.
func (j *Job) Batch() (Job, bool) {
	if j.Started.IsZero() {
		return Job{}, false
	}
	b := *j
	b.Step, b.Name, b.Partition, b.User, b.Group, b.QOS = "batch", "batch", "", "", "", ""
	if b.State, _, _ = strings.Cut(j.State, " "); b.State == "TIMEOUT" { // the job's state also says by whom
		b.State = "CANCELLED" // the limit is the job's
	}
	b.Eligible, b.Dir, b.Command, b.Comment = j.Started, "", "", ""
	b.Submitted, b.Nodes, b.Tasked = j.Started, 1, 1
	b.NodeList = j.FirstNode()
	b.CPUs, b.MemUsedMiB, b.GPUs = cmp.Or(j.MinCPUs, j.CPUs), j.MinMemMiB, j.GPUs/max(1, j.Nodes)
	return b, true
}

// ofJob leaves the values that only jobs have out of steps.
func ofJob(value func(*Job) string) func(*Job) string {
	return func(j *Job) string {
		if j.Step != "" {
			return ""
		}
		return value(j)
	}
}

// exits returns the exit code and the signal. A code that merely encodes the
// signal, as shells do, is 0 in Slurm.
func (j *Job) exits() string {
	code := j.ExitCode
	if j.Signal != 0 && code == 128+j.Signal {
		code = 0
	}
	return fmt.Sprintf("%d:%d", code, j.Signal)
}

// Accounted returns how the job, or its step, ended according to the
// accounting: a job that was cancelled or ran out of time is entered before
// its script has ended, so only the step shows how that ended.
func (j *Job) Accounted() (code, signal int32) {
	if j.Step == "" && (strings.HasPrefix(j.State, "CANCELLED") || j.State == "TIMEOUT") {
		return 0, 0
	}
	return j.ExitCode, j.Signal
}

// accountedExits is exits according to the accounting.
func (j *Job) accountedExits() string {
	in := *j
	in.ExitCode, in.Signal = j.Accounted()
	return in.exits()
}

func (j *Job) limitLong() string {
	if j.Limit == 0 {
		return "UNLIMITED"
	}
	return text.Clock(j.Limit)
}

func (j *Job) limitMinutes() string {
	if j.Limit == 0 {
		return "UNLIMITED"
	}
	return number(int64(j.Limit / time.Minute))
}

func kib(mib int64) string {
	if mib == 0 {
		return ""
	}
	return strconv.FormatInt(mib<<10, 10) + "K"
}

// inUnit formats an amount of bytes in the requested unit, else as plain.
func (j *Job) inUnit(n int64, plain string) string {
	at := strings.Index(units, j.Unit)
	if j.Unit == "" || at < 0 || n <= 0 {
		return plain
	}
	v := float64(n) / float64(int64(1)<<(10*(at+1)))
	if v == float64(int64(v)) {
		return strconv.FormatInt(int64(v), 10) + j.Unit
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + j.Unit
}

// units are the units of sacct --units.
const units = "KMGTP"

// KnownUnit reports whether a letter is a unit of sacct --units.
func KnownUnit(s string) bool { return len(s) == 1 && strings.Contains(units, s) }

func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// scaled formats a number with Slurm's letters for thousands: 950, 1.50K, 2M.
func scaled(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, u
	}
	switch {
	case n <= 0:
		return ""
	case v == float64(int64(v)):
		return strconv.FormatInt(int64(v), 10) + unit
	}
	return strconv.FormatFloat(v, 'f', 2, 64) + unit
}

// bytesText formats an amount of bytes as sacct writes those of disks, in MiB.
func bytesText(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 2, 64) + "M"
}

// cpuTime formats CPU time with thousandths of a second: 01:02.345,
// 1:01:02, 1-00:00:00.
func cpuTime(d time.Duration) string {
	if d < time.Hour {
		return fmt.Sprintf("%02d:%02d.%03d", d/time.Minute, d/time.Second%60, d/time.Millisecond%1000)
	}
	return text.Clock(d)
}

// used returns the use of counted resources, as far as it was measured.
func (j *Job) used(gpuMilli int64) string {
	var out []string
	add := func(ok bool, format string, v ...any) {
		if ok {
			out = append(out, fmt.Sprintf(format, v...))
		}
	}
	add(j.CPUUsed > 0, "cpu=%s", text.Clock(j.CPUUsed))
	add(j.EnergyJ > 0, "energy=%d", j.EnergyJ)
	add(j.GPUMemMiB > 0, "gres/gpumem=%dM", j.GPUMemMiB)
	add(j.GPUMemMiB > 0 || gpuMilli > 0, "gres/gpuutil=%d", (gpuMilli+5)/10)
	add(j.MaxRSSMiB > 0, "mem=%s", kib(j.MaxRSSMiB))
	return strings.Join(out, ",")
}
