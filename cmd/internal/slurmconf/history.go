package slurmconf

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

// Run is one job of a history, which shows what such jobs use.
type Run struct {
	// User is a name, or a number where the file has UIDs.
	User string
	Name string
	// GPUs are those of one node, GPUType Slurm's name for them, which may be
	// empty.
	GPUs    int
	GPUType string
	// Seconds is 0 for a run that did not run to completion.
	Seconds float64
	// HostMiB and CPUMilli are per node, GPUMiB and GPUUtilMilli per GPU; 0 if not
	// measured.
	HostMiB, CPUMilli, GPUMiB, GPUUtilMilli int64
}

// DroppedRuns counts jobs or rows from which nothing can be learned, by reason.
type DroppedRuns struct {
	Why   string `json:"why"`
	Count int    `json:"count"`
	// Line is the first of them.
	Line int `json:"first_line"`
}

// History is what can be learned from the jobs that sacct printed.
type History struct {
	Rows, Jobs int
	Runs       []Run
	Dropped    []DroppedRuns
	// Measured is for how many runs Slurm had measured the GPU memory.
	Measured int
}

// SacctCommand is the best command to write the file.
const SacctCommand = "sacct -a -P -S 2026-01-01 -o JobID,JobName,User,UID,State,ElapsedRaw,AllocTRES,NNodes,NCPUS,MaxRSS,TotalCPU,TRESUsageInMax,TRESUsageInAve"

// runsPerJob is how many of the newest runs of one user and name are kept: a few
// show what they have in common.
const runsPerJob = 4

// ReadHistory reads what sacct -P printed, with a header and columns in any order;
// most is how many runs are kept, the newest ones.
func ReadHistory(r io.Reader, most int) (*History, error) {
	c := csv.NewReader(r)
	c.Comma, c.LazyQuotes, c.FieldsPerRecord, c.ReuseRecord = '|', true, -1, true
	head, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("is not a table from sacct -P (%w); write it with: %s", err, SacctCommand)
	}
	h := &history{cols: map[string]int{}, want: len(head), dropped: map[string]*DroppedRuns{}}
	for i, name := range head {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if _, twice := h.cols[name]; !twice && name != "" {
			h.cols[name] = i
		}
	}
	if err := h.lacks(); err != nil {
		return nil, err
	}
	for {
		rec, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		h.out.Rows++
		h.line, _ = c.FieldPos(0)
		switch {
		case err != nil:
			h.drop("rows that cannot be read")
		case len(rec) != h.want:
			h.drop("rows with fewer or more fields than the first line")
		default:
			h.row(rec)
		}
	}
	h.flush()
	return h.finish(most), nil
}

// history is a file while it is read.
type history struct {
	cols    map[string]int
	want    int
	line    int
	out     History
	dropped map[string]*DroppedRuns
	now     *jobRows // whose steps may follow
	runs    []Run
}

// jobRows is one job with its steps.
type jobRows struct {
	id, user, name, state, tres, gres string
	line                              int
	nodes                             int64
	elapsed                           float64
	rssMiB, gpuMiB                    int64
	gpuUtil                           int64
	cpuSeconds                        float64
	bad                               string // why it is dropped, found while reading
}

// lacks returns an error that names missing columns.
func (h *history) lacks() error {
	var missing []string
	for _, any := range [][]string{{"jobid", "jobidraw"}, {"jobname"}, {"user", "uid"}, {"state"}, {"elapsedraw", "elapsed"}, {"alloctres", "reqtres", "allocgres", "reqgres"}} {
		if !slices.ContainsFunc(any, func(n string) bool { _, ok := h.cols[n]; return ok }) {
			missing = append(missing, any[0])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("has no column %s; write it with: %s", strings.Join(missing, ", "), SacctCommand)
}

func (h *history) drop(why string) { h.dropAt(why, h.line) }

func (h *history) dropAt(why string, line int) {
	d := h.dropped[why]
	if d == nil {
		d = &DroppedRuns{Why: why, Line: line}
		h.dropped[why] = d
	}
	d.Count++
}

// row takes one row: a job, or a step of the job before it.
func (h *history) row(rec []string) {
	text := func(names ...string) string {
		for _, n := range names {
			if i, ok := h.cols[n]; ok && strings.TrimSpace(rec[i]) != "" {
				return strings.Clone(strings.TrimSpace(rec[i]))
			}
		}
		return ""
	}
	id := text("jobid", "jobidraw")
	base, _, step := strings.Cut(id, ".")
	if step {
		if h.now == nil || h.now.id != base {
			h.drop("steps of jobs that are not in the file")
			return
		}
		h.now.usage(text)
		return
	}
	h.flush()
	h.out.Jobs++
	j := &jobRows{id: id, line: h.line, user: text("uid", "user"), name: text("jobname"), state: text("state"),
		tres: text("alloctres", "reqtres"), gres: text("allocgres", "reqgres"), nodes: 1}
	if n, err := strconv.ParseInt(text("nnodes", "allocnodes"), 10, 32); err == nil && n > 0 {
		j.nodes = n
	}
	var ok bool
	if raw := text("elapsedraw"); raw != "" {
		v, err := strconv.ParseFloat(raw, 64)
		j.elapsed, ok = v, err == nil && v >= 0
	} else {
		j.elapsed, ok = span(text("elapsed"))
	}
	if !ok {
		j.bad = "jobs whose elapsed time cannot be read"
	}
	j.usage(text)
	h.now = j
}

// usage adds the usage of a row.
func (j *jobRows) usage(text func(...string) string) {
	if n, ok := sizeMiB(text("maxrss")); ok {
		j.rssMiB = max(j.rssMiB, n)
	}
	if s, ok := span(text("totalcpu", "cputime used")); ok {
		j.cpuSeconds = max(j.cpuSeconds, s)
	}
	for _, t := range SplitTRES(text("tresusageinmax")) {
		switch t.Name {
		case "gres/gpumem":
			if n, ok := sizeMiB(t.Count); ok {
				j.gpuMiB = max(j.gpuMiB, n)
			}
		case "mem":
			if n, ok := sizeMiB(t.Count); ok {
				j.rssMiB = max(j.rssMiB, n)
			}
		}
	}
	for _, t := range SplitTRES(text("tresusageinave")) {
		if n, err := strconv.ParseInt(t.Count, 10, 32); t.Name == "gres/gpuutil" && err == nil && n > 0 {
			j.gpuUtil = max(j.gpuUtil, min(n, 100)*10)
		}
	}
}

// flush takes the job whose rows have all been read.
func (h *history) flush() {
	j := h.now
	h.now = nil
	if j == nil {
		return
	}
	run, why := j.run()
	if why != "" {
		h.dropAt(why, j.line)
		return
	}
	h.runs = append(h.runs, run)
}

// run makes a run of a job, or says why it is dropped.
func (j *jobRows) run() (Run, string) {
	state, _, _ := strings.Cut(j.state, " ") // CANCELLED by 1000
	typ, gpus := gpusOf(j.tres, j.gres)
	switch {
	case j.bad != "":
		return Run{}, j.bad
	case state != "COMPLETED" && state != "TIMEOUT":
		return Run{}, "jobs in state " + state
	case gpus == 0:
		return Run{}, "jobs without GPUs"
	case gpus%j.nodes != 0:
		return Run{}, "jobs with different numbers of GPUs on their nodes"
	case j.user == "":
		return Run{}, "jobs without a user"
	case j.elapsed < 1:
		return Run{}, "jobs that ran for less than a second"
	case j.rssMiB == 0 && j.gpuMiB == 0 && state == "TIMEOUT":
		return Run{}, "jobs that hit their time limit and were not measured"
	}
	r := Run{User: j.user, Name: sbatch.CleanName(j.name), GPUs: int(gpus / j.nodes), GPUType: typ, HostMiB: j.rssMiB, GPUMiB: j.gpuMiB, GPUUtilMilli: j.gpuUtil}
	if state == "COMPLETED" {
		r.Seconds = j.elapsed
	}
	if j.cpuSeconds > 0 {
		r.CPUMilli = int64(min(j.cpuSeconds/j.elapsed/float64(j.nodes), 4096) * 1000)
	}
	if r.Name == "" {
		return Run{}, "jobs without a name"
	}
	return r, ""
}

// gpusOf reads how many GPUs a job had in total, and their type.
func gpusOf(tres, gres string) (typ string, n int64) {
	typed := int64(0)
	for _, t := range SplitTRES(tres) {
		count, err := strconv.ParseInt(t.Count, 10, 32)
		if err != nil || count < 0 {
			continue
		}
		if t.Name == "gres/gpu" {
			n = count
		} else if name, ok := strings.CutPrefix(t.Name, "gres/gpu:"); ok {
			typ, typed = name, typed+count
		}
	}
	if n = max(n, typed); n > 0 || gres == "" {
		return typ, n
	}
	for item := range strings.SplitSeq(gres, ",") {
		f := strings.Split(strings.TrimPrefix(item, "gres/"), ":")
		if f[0] != "gpu" {
			continue
		}
		count := int64(1)
		if len(f) > 1 {
			if c, err := strconv.ParseInt(f[len(f)-1], 10, 32); err == nil && c >= 0 {
				count = c
			}
		}
		if len(f) == 3 {
			typ = f[1]
		}
		n += count
	}
	return typ, n
}

// finish keeps the newest runs, a few of each name, oldest first.
func (h *history) finish(most int) *History {
	type job struct {
		user, name string
		gpus       int
	}
	seen := map[job]int{}
	var kept []Run
	for _, r := range slices.Backward(h.runs) {
		k := job{r.User, r.Name, r.GPUs}
		if seen[k]++; seen[k] > runsPerJob || len(kept) == most {
			d := fmt.Sprintf("runs beyond the newest %d of a user under one name", runsPerJob)
			if seen[k] <= runsPerJob {
				d = fmt.Sprintf("runs beyond the newest %d in all", most)
			}
			h.dropAt(d, 0)
			continue
		}
		kept = append(kept, r)
		if r.GPUMiB > 0 {
			h.out.Measured++
		}
	}
	slices.Reverse(kept)
	h.out.Runs = kept
	for _, d := range h.dropped {
		h.out.Dropped = append(h.out.Dropped, *d)
	}
	slices.SortFunc(h.out.Dropped, func(a, b DroppedRuns) int { return cmp.Or(b.Count-a.Count, strings.Compare(a.Why, b.Why)) })
	return &h.out
}

// span reads 1-02:03:04, 02:03:04.567, 03:04 as seconds.
func span(s string) (float64, bool) {
	if s == "" {
		return 0, false
	}
	days, clock := 0.0, s
	if d, rest, ok := strings.Cut(s, "-"); ok {
		n, err := strconv.ParseUint(d, 10, 20)
		if err != nil {
			return 0, false
		}
		days, clock = float64(n), rest
	}
	parts := strings.Split(clock, ":")
	if len(parts) > 3 || len(parts) < 2 {
		return 0, false
	}
	total := 0.0
	for _, p := range parts {
		n, err := strconv.ParseFloat(p, 64)
		if err != nil || !(n >= 0 && n < 1e6) {
			return 0, false
		}
		total = total*60 + n
	}
	return days*86400 + total, true
}

// sizeMiB reads 12345K, 1.5G, 11264M; without a unit it is bytes.
func sizeMiB(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	unit := 1.0 / (1 << 20)
	switch s[len(s)-1] {
	case 'K':
		unit = 1.0 / 1024
	case 'M':
		unit = 1
	case 'G':
		unit = 1024
	case 'T':
		unit = 1 << 20
	}
	x, err := strconv.ParseFloat(strings.TrimRight(s, "KMGT"), 64)
	if err != nil || !(x >= 0 && x*unit < 1<<30) {
		return 0, false
	}
	return int64(math.Ceil(x * unit)), true
}
