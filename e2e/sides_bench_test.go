package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/e2e/slurmsite"
)

// BenchmarkSides does the same to Slurm and to Berth, in turns on one machine, and
// prints one table of what a user waits for, into the file that SIDES names as well.
// Each has one controller and 64 slots: Slurm a node of 64 cores and cards that are
// /dev/null, Berth eight of eight simulated cards, one job to a card. Slurm runs as its
// guide for high throughput says, without accounting, cgroups or containers, and writes
// its state now and then; Berth has its log on disk before it answers.
func BenchmarkSides(b *testing.B) {
	bench := &sides{b: b, dir: b.TempDir(), rows: map[string]*sideRow{}}
	bench.calibrate()
	slurm := slurmsite.Start(b, slurmsite.Options{CPUs: 64, GPUs: 64, More: "MaxJobCount=50000"})
	berth := startBenchSite(b, "--nodes", "8x8xT4", "--policy", "slot")
	links := bench.dir + "/links" // of berth as Slurm's commands
	if err := os.Mkdir(links, 0o755); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"sbatch", "squeue", "scancel"} {
		if err := os.Symlink(appletOf(program(b), name), filepath.Join(links, name)); err != nil {
			b.Fatal(err)
		}
	}
	two := []*side{
		{name: "Slurm", dir: slurm.Dir(), env: slurm.Env(), daemons: []string{"slurmctld", "munged"}},
		{name: "Berth", dir: berth.dir, env: berth.env, links: links, daemons: []string{"coordinator"}},
	}
	for round := range 3 {
		for _, s := range two {
			bench.starts(s)
			bench.submits(s, 1, 60)
			bench.submits(s, 8, 240)
			bench.submits(s, 16, 240)
			bench.begins(s)
			bench.runs(s, "1,000 × `true` by 8 clients' `sbatch`, until the queue is empty", func() { bench.clients(s, 8, 1000, "--gres=gpu:1") })
			bench.runs(s, "the same as one array", func() {
				s.output(b, "", "sbatch", "-t", "5", "-o", "/dev/null", "--gres=gpu:1", "-a", "0-999", bench.script())
			})
		}
		slices.Reverse(two)
		b.Logf("round %d of 3 done", round+1)
	}
	bench.lists(two)
	text := bench.table()
	b.Log("\n" + text)
	if path := os.Getenv("SIDES"); path != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// program is the path of the program berth, for links to it.
func program(b *testing.B) string {
	path, err := filepath.Abs(berth)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// side is one of the two clusters.
type side struct {
	name, dir string
	env       []string
	links     string   // folder of the commands, "" for the system's
	daemons   []string // what stands in the command lines of its controller's processes
}

func (s *side) command(stdin, name string, args ...string) *exec.Cmd {
	if s.links != "" {
		name = filepath.Join(s.links, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(stdin)
	return cmd
}

func (s *side) output(b *testing.B, stdin, name string, args ...string) string {
	cmd := s.command(stdin, name, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%s: %s %s: %v\n%s", s.name, name, strings.Join(args, " "), err, errs.String())
	}
	return string(out)
}

// cpu is the processor time that the controller has used.
func (s *side) cpu() time.Duration {
	const tick = time.Second / 100 // USER_HZ is 100 on each of Go's Linux ports
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var all time.Duration
	for _, path := range stats {
		line, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
		if !bytes.Contains(line, []byte(s.dir)) || !slices.ContainsFunc(s.daemons, func(d string) bool { return bytes.Contains(line, []byte(d)) }) {
			continue
		}
		stat, _ := os.ReadFile(path)
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 13 {
			continue // it has ended
		}
		for _, f := range fields[11:13] {
			n, _ := strconv.Atoi(f)
			all += time.Duration(n) * tick
		}
	}
	return all
}

// sideRow is one line of the table: what was measured of each side.
type sideRow struct {
	what, unit string
	more       bool // more is better
	got        map[string][]float64
}

type sides struct {
	b       *testing.B
	dir     string
	order   []string
	rows    map[string]*sideRow
	machine string
}

func (t *sides) note(s *side, what, unit string, more bool, value float64) {
	r := t.rows[what]
	if r == nil {
		r = &sideRow{what: what, unit: unit, more: more, got: map[string][]float64{}}
		t.rows[what], t.order = r, append(t.order, what)
	}
	r.got[s.name] = append(r.got[s.name], value)
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	if len(of) == 0 {
		return 0
	}
	return of[len(of)/2]
}

// times is the median of n runs of do, in milliseconds.
func times(n int, do func()) float64 {
	var took []float64
	for range n {
		began := time.Now()
		do()
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	return median(took)
}

// calibrate measures the machine itself: a process that does nothing, one that is
// written in Go, and a write that is on disk.
func (t *sides) calibrate() {
	hello := filepath.Join(t.dir, "hello")
	if err := os.WriteFile(hello+".go", []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o600); err != nil {
		t.b.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", hello, hello+".go").CombinedOutput(); err != nil {
		t.b.Fatalf("go build: %v\n%s", err, out)
	}
	run := func(path string) float64 {
		return times(50, func() {
			if err := exec.Command(path).Run(); err != nil {
				t.b.Fatal(err)
			}
		})
	}
	f, err := os.Create(filepath.Join(t.dir, "fsync"))
	if err != nil {
		t.b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	fsync := times(50, func() {
		if _, err := f.Write(page); err != nil {
			t.b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.b.Fatal(err)
		}
	})
	load, _ := os.ReadFile("/proc/loadavg")
	t.machine = fmt.Sprintf("%d cores, load %s at the start. A process that does nothing: %.1f ms; a Go hello world: %.1f ms; an fsync of 4 KiB: %.2f ms.",
		runtime.NumCPU(), strings.Fields(string(load) + " ?")[0], run("/bin/true"), run(hello), fsync)
}

// script is a file of a job that does nothing.
func (t *sides) script() string {
	path := filepath.Join(t.dir, "true.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ntrue\n"), 0o700); err != nil {
		t.b.Fatal(err)
	}
	return path
}

func (t *sides) starts(s *side) {
	t.note(s, "`sbatch --version`, start to end of the process", "ms", false, times(30, func() { s.output(t.b, "", "sbatch", "--version") }))
}

// clients has so many processes at once submit jobs one by one, and returns the
// processor time of all of them.
func (t *sides) clients(s *side, clients, jobs int, options ...string) time.Duration {
	args := slices.Concat([]string{"-t", "5", "-o", "/dev/null"}, options, []string{t.script()})
	var mu sync.Mutex
	var spent time.Duration
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range jobs / clients {
				cmd := s.command("", "sbatch", args...)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.b.Errorf("%s: sbatch: %v\n%s", s.name, err, out)
					return
				}
				mu.Lock()
				spent += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return spent
}

// submits measures held jobs, one process each.
func (t *sides) submits(s *side, clients, jobs int) {
	before, began := s.cpu(), time.Now()
	spent := t.clients(s, clients, jobs, "-H")
	took, served := time.Since(began), s.cpu()-before
	t.note(s, fmt.Sprintf("`sbatch -H`, a process a job, %d at once", clients), "jobs/s", true, float64(jobs)/took.Seconds())
	if clients == 8 {
		t.note(s, "the same, 8 at once: processor time of the client", "ms/job", false, float64(spent.Microseconds())/1000/float64(jobs))
		t.note(s, "and of the controller", "ms/job", false, float64(served.Microseconds())/1000/float64(jobs))
	}
	s.output(t.b, "", "scancel", "-u", "root")
	t.empty(s)
}

// empty waits until nothing is in the queue.
func (t *sides) empty(s *side) {
	for deadline := time.Now().Add(5 * time.Minute); s.output(t.b, "", "squeue", "-h", "-o", "%i") != ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.b.Fatalf("%s: jobs are in the queue after five minutes", s.name)
		}
	}
}

// begins measures from sbatch to the first line of the job, on an idle cluster.
func (t *sides) begins(s *side) {
	n := 0
	took := times(10, func() {
		n++
		mark := filepath.Join(t.dir, fmt.Sprint("mark-", s.name, n))
		os.Remove(mark)
		s.output(t.b, "#!/bin/sh\n: > "+mark+"\n", "sbatch", "-t", "5", "-o", "/dev/null", "--gres=gpu:1")
		for _, err := os.Stat(mark); err != nil; _, err = os.Stat(mark) {
			time.Sleep(2 * time.Millisecond)
		}
	})
	t.note(s, "`sbatch` to the job's first line, idle", "ms", false, took)
	t.empty(s)
}

// runs measures how many jobs a second come through from the first submit on.
func (t *sides) runs(s *side, what string, submit func()) {
	began := time.Now()
	submit()
	t.empty(s)
	t.note(s, what, "jobs/s", true, 1000/time.Since(began).Seconds())
}

// lists measures listings of jobs that wait each by itself: an array is one record to
// either.
func (t *sides) lists(two []*side) {
	const waiting = 10_000
	for _, s := range two {
		t.clients(s, 8, waiting, "-H", "--gres=gpu:1")
	}
	for range 5 {
		for _, s := range two {
			for _, args := range [][]string{{"squeue"}, {"squeue", "-t", "R"}, {"squeue", "--json"}} {
				what := fmt.Sprintf("`%s`, 10,000 waiting", strings.Join(args, " "))
				t.note(s, what, "ms", false, times(1, func() {
					if n := strings.Count(s.output(t.b, "", args[0], args[1:]...), "\n"); len(args) == 1 && n != waiting+1 {
						t.b.Fatalf("%s lists %d lines, want %d jobs", s.name, n, waiting)
					}
				}))
			}
		}
		slices.Reverse(two)
	}
}

// table is what was measured as Markdown.
func (t *sides) table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s Medians of turns.\n\n| what | | Slurm | Berth | Berth's is |\n| --- | --- | --- | --- | --- |\n", t.machine)
	for _, what := range t.order {
		r := t.rows[what]
		slurm, berth := median(r.got["Slurm"]), median(r.got["Berth"])
		good, times := cmp.Compare(berth, slurm) < 0, slurm/berth
		if r.more {
			good, times = !good, berth/slurm
		}
		word := "times as good"
		if !good {
			word = "times as good, missed"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %.2f %s |\n", r.what, r.unit, figure(slurm), figure(berth), times, word)
	}
	return out.String()
}

func figure(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}
