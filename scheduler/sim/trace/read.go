package trace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// StepKey identifies a speed: type of GPU in lower case, job type, GPUs.
type StepKey struct {
	GPUType, JobType string
	GPUs             int
}

// Options select what is read of a trace.
type Options struct {
	// Mix names one of several lists in a folder by its file name or the end of it,
	// or one group of a list (a virtual cluster, a sample), or both as
	// "FILE:GROUP". Empty takes the default list, or else the largest.
	Mix string
	// Strict stops at the first bad row.
	Strict bool
	// StepsPerSecond is needed for lists with steps but no durations.
	StepsPerSecond map[StepKey]float64
	// Since and Until bound the arrivals, from the first; 0 does not.
	Since, Until time.Duration
	// MaxJobs reads only so many of the first jobs; 0 reads all.
	MaxJobs int

	peaks map[peakKey]int64 // of SchedTune's training runs
	group string
}

// list is a file of jobs in a folder.
type list struct {
	path string
	stem string
	form format
	size int64
	pods bool
}

// Load reads a trace: a file, or a folder of which the options pick one list
// of jobs, together with the nodes that the folder describes.
func Load(path string, o Options) (*workload.Workload, Report, error) {
	var rep Report
	lists, nodes, err := survey(path, &o)
	if err != nil {
		return nil, rep, err
	}
	if len(lists) == 0 {
		hint := ""
		if len(nodes) > 0 {
			hint = "; it holds a list of nodes, which can be a cluster for another trace"
		}
		return nil, rep, fmt.Errorf("%s: holds no list of jobs that can be read; such a list has at least the columns %s, %s and %s, or is one of %s%s",
			path, arrivalNames[0], durationNames[1], gpuNames[0], formNames(), hint)
	}
	pick, err := o.choose(lists)
	if err != nil {
		return nil, rep, fmt.Errorf("%s: %w", path, err)
	}
	w := &workload.Workload{Name: nameOf(path, pick, len(lists)), Form: pick.form.name, Nodes: nodes}
	if err := o.read(pick, w, &rep); err != nil {
		return nil, rep, err
	}
	o.settle(w, pick)
	rep.Jobs = len(w.Jobs)
	if rep.Jobs == 0 {
		return nil, rep, fmt.Errorf("%s: no row of %s made a job; %s", path, filepath.Base(pick.path), rep.firstBad())
	}
	return w, rep, nil
}

func (r *Report) firstBad() string {
	if len(r.Bad) == 0 {
		return "there are none in the group and time asked for"
	}
	return fmt.Sprintf("row %d: %s", r.Bad[0].Row, r.Bad[0].Err)
}

func nameOf(path string, l list, lists int) string {
	base := filepath.Base(filepath.Clean(path))
	if lists == 1 || base == filepath.Base(l.path) {
		return stem(base)
	}
	return base + "/" + l.stem
}

func stem(name string) string {
	for _, ext := range []string{".gz", ".csv", ".txt", ".psv"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// survey reads the heads of all files.
func survey(path string, o *Options) ([]list, []workload.NodeSpec, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.IsDir() {
		l, ok, err := classify(path, info.Size())
		if err == nil && !ok {
			err = whyNot(path)
		}
		if err != nil {
			return nil, nil, err
		}
		return []list{l}, nil, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, nil, err
	}
	var lists []list
	var nodeFile string
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		base := strings.TrimSuffix(e.Name(), ".gz")
		if e.IsDir() || !strings.HasSuffix(base, ".csv") && !strings.HasSuffix(base, ".psv") && !strings.HasSuffix(base, ".txt") {
			continue
		}
		kind, l, err := inspect(file)
		switch {
		case err != nil:
			return nil, nil, err
		case kind == isJobs:
			lists = append(lists, l)
		case kind == isNodes && (nodeFile == "" || strings.Contains(base, "gpu_node")):
			nodeFile = file
		case kind == isPeaks:
			if o.peaks, err = readPeaks(file); err != nil {
				return nil, nil, err
			}
		}
	}
	var nodes []workload.NodeSpec
	if nodeFile != "" {
		if nodes, err = ReadNodes(nodeFile); err != nil {
			return nil, nil, err
		}
	}
	return lists, nodes, nil
}

// whyNot says why a file is not a list of jobs.
func whyNot(path string) error {
	r, c, err := open(path)
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := newTable(path, r)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: is no list of jobs that can be read: %s", path, lacks(t))
}

type fileKind uint8

const (
	isOther fileKind = iota
	isJobs
	isNodes
	isPeaks
)

// inspect determines from its head what a file holds.
func inspect(path string) (fileKind, list, error) {
	info, err := os.Stat(path)
	if err != nil {
		return isOther, list{}, err
	}
	l, ok, err := classify(path, info.Size())
	if err != nil || ok {
		return isJobs, l, err
	}
	r, c, err := open(path)
	if err != nil {
		return isOther, l, err
	}
	defer c.Close()
	t, err := newTable(path, r)
	switch {
	case err != nil:
		return isOther, l, nil //nolint:nilerr // a file of another kind
	case isNodeList(t):
		return isNodes, l, nil
	case t.has("model", "batch_size", "gpu", "peak_mem_mib"):
		return isPeaks, l, nil
	}
	return isOther, l, nil
}

// classify reports whether a file is a list of jobs, and of which form.
func classify(path string, size int64) (list, bool, error) {
	r, c, err := open(path)
	if err != nil {
		return list{}, false, err
	}
	defer c.Close()
	l := list{path: path, stem: stem(filepath.Base(path)), size: size}
	t, err := newTable(path, r)
	if err != nil {
		return l, false, nil //nolint:nilerr // empty, or not text
	}
	if isSeries(t) {
		l.pods = true
		return l, true, nil
	}
	for _, f := range formats() {
		if len(f.must) > 0 && t.has(f.must...) || len(f.must) == 0 && known(t) == nil {
			l.form = f
			return l, true, nil
		}
	}
	return l, false, nil
}

// formNames lists the published forms.
func formNames() string {
	var out []string
	for _, f := range formats() {
		if len(f.must) > 0 && !slices.Contains(out, f.name) {
			out = append(out, f.name)
		}
	}
	return strings.Join(out, ", ")
}

// choose picks the list that the mix names.
func (o *Options) choose(lists []list) (list, error) {
	file, group, both := strings.Cut(o.Mix, ":")
	o.group = group
	if o.Mix != "" {
		for _, l := range lists {
			if l.stem == file || strings.HasSuffix(l.stem, "_"+file) || strings.HasSuffix(l.stem, "-"+file) {
				return l, nil
			}
		}
		if both {
			return list{}, fmt.Errorf("mix %q: no list of that name; there are %s", file, stems(lists))
		}
		o.group = file // of the default list
	}
	best := lists[0]
	for _, l := range lists[1:] {
		isDefault, wasDefault := strings.HasSuffix(l.stem, "default"), strings.HasSuffix(best.stem, "default")
		if isDefault && !wasDefault || isDefault == wasDefault && l.size > best.size {
			best = l
		}
	}
	return best, nil
}

func stems(lists []list) string {
	var out []string
	for _, l := range lists {
		out = append(out, l.stem)
	}
	sort.Strings(out)
	return strings.Join(out, ", ")
}

// read reads the rows of one list.
func (o *Options) read(l list, w *workload.Workload, rep *Report) error {
	r, c, err := open(l.path)
	if err != nil {
		return err
	}
	defer c.Close()
	return o.readRows(filepath.Base(l.path), r, l.form, l.pods, w, rep)
}

func (o *Options) readRows(name string, r io.Reader, form format, pods bool, w *workload.Workload, rep *Report) error {
	t, err := newTable(name, r)
	if err != nil {
		return err
	}
	sums, seen := series{pods: map[string]*pod{}}, newSeen()
	for {
		bad, fatal := t.next()
		if errors.Is(fatal, io.EOF) {
			break
		}
		if fatal != nil {
			return fatal
		}
		rep.Rows++
		var j workload.Job
		switch {
		case bad != nil:
		case pods:
			bad = sums.add(t)
		default:
			j, bad = form.read(t, o)
		}
		if bad == nil && !pods {
			if o.group != "" && j.Group != o.group {
				continue
			}
			j.Row = t.row
			bad = o.keep(j, w, seen)
		}
		if bad == nil {
			continue
		}
		rep.Skipped++
		if o.Strict && !errors.Is(bad, errSkip) {
			return fmt.Errorf("%s: row %d: %w", name, t.row, bad)
		}
		if len(rep.Bad) < maxBad {
			rep.Bad = append(rep.Bad, BadRow{name, t.row, bad.Error()})
		}
	}
	if pods {
		w.Jobs = sums.jobs()
	}
	if seen.unsorted > 0 {
		w.Notes = append(w.Notes, fmt.Sprintf("%d rows of %s were not in order of arrival, and were sorted", seen.unsorted, name))
	}
	return nil
}

// maxJobsKept bounds the memory that a list may take: about 1.5 GiB.
const maxJobsKept = 5_000_000

// longestRun is the longest credible run time. Anything longer is likely in another
// unit.
const longestRun = 366 * 24 * time.Hour

// keep accepts a row if it is a job.
func (o *Options) keep(j workload.Job, w *workload.Workload, seen *seen) error {
	switch {
	case len(w.Jobs) >= maxJobsKept:
		return fmt.Errorf("more than %d jobs; part the list", maxJobsKept)
	case j.Submit < 0:
		return fmt.Errorf("arrives %s before the trace begins", -j.Submit)
	case j.Duration < 0:
		return fmt.Errorf("runs for %s: ends before it begins", j.Duration)
	case j.Duration == 0:
		return fmt.Errorf("runs for 0s: %w", errSkip)
	case j.Duration > longestRun:
		return fmt.Errorf("runs for %s, longer than a year; are its times in another unit?", j.Duration)
	}
	if row := seen.twice(&j, len(w.Jobs), w); row > 0 {
		return fmt.Errorf("job %s: is the same as row %d", j.ID, row)
	}
	if n := len(w.Jobs); n > 0 && j.Submit < w.Jobs[n-1].Submit {
		seen.unsorted++
	}
	w.Jobs = append(w.Jobs, j)
	return nil
}

// seen finds duplicate rows, and counts those out of order.
type seen struct {
	at       map[string]int
	unsorted int
}

func newSeen() *seen { return &seen{at: map[string]int{}} }

// twice returns the row of a job that has the same id and the same figures, 0 if
// there is none. Rows without an id may well be alike. A repeated id with other
// figures is another run of that job, as Slurm lists them.
func (s *seen) twice(j *workload.Job, next int, w *workload.Workload) int {
	if j.ID == "" {
		return 0
	}
	k, ok := s.at[j.ID]
	if !ok {
		s.at[j.ID] = next
		return 0
	}
	old := &w.Jobs[k]
	if old.Submit == j.Submit && old.Duration == j.Duration && old.GPUs == j.GPUs && old.Milli == j.Milli && old.MemMiB == j.MemMiB &&
		old.User == j.User && old.Group == j.Group && old.Model == j.Model {
		return old.Row
	}
	return 0
}

// settle names jobs, applies the window, and starts time at 0.
func (o *Options) settle(w *workload.Workload, l list) {
	if l.form.name == "sia" && o.group == "" {
		w.Jobs = firstGroup(w.Jobs)
		w.Notes = append(w.Notes, "the list holds several samples of a workload; the first was taken")
	}
	nameJobs(w)
	if len(w.Jobs) == 0 {
		return
	}
	first := w.Jobs[0].Submit
	var in []workload.Job
	for _, j := range w.Jobs {
		j.Submit -= first
		if j.Deadline > 0 {
			j.Deadline -= first
		}
		if j.Submit < o.Since || o.Until > 0 && j.Submit >= o.Until {
			continue
		}
		j.Submit -= o.Since
		j.Deadline = max(0, j.Deadline-o.Since)
		in = append(in, j)
		if o.MaxJobs > 0 && len(in) == o.MaxJobs {
			break
		}
	}
	w.Jobs = in
	if n := notes()[l.form.name]; n != "" {
		w.Notes = append(w.Notes, n)
	}
}

func notes() map[string]string {
	return map[string]string{
		"sia":       "durations are the geometric middle of each application's class of GPU time, over its GPUs",
		"schedtune": "run times and the memory of inference are not in the artefact; both are assumed from operation counts",
		"openb":     "gpu_milli is a share of compute; the same share of memory is assumed",
		"dlrm":      "instances that were never deleted run until the trace ends",
	}
}

func firstGroup(jobs []workload.Job) []workload.Job {
	if len(jobs) == 0 {
		return jobs
	}
	least := jobs[0].Group
	for _, j := range jobs {
		if len(j.Group) < len(least) || len(j.Group) == len(least) && j.Group < least {
			least = j.Group
		}
	}
	return slices.DeleteFunc(jobs, func(j workload.Job) bool { return j.Group != least })
}

// nameJobs sorts and makes ids unique. Rows without a name are named by their
// contents, so that their order in the file does not matter.
func nameJobs(w *workload.Workload) {
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.ID == "" {
			j.ID = fmt.Sprintf("%d-%d-%d-%s%s", int64(j.Submit/time.Millisecond), int64(j.Duration/time.Millisecond), j.GPUs, j.Group, j.Model)
		}
	}
	w.Sort()
	seen := make(map[string]int, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		seen[j.ID]++
		if n := seen[j.ID]; n > 1 {
			j.ID += "#" + strconv.Itoa(n)
		}
	}
}
