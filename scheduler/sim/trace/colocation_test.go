package trace

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

func TestTablesOfPairs(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{
		"gavel_isolated.csv.gz": "gpu_type,job,scale_factor,tput_alone\nV100,A (batch size 1),2,12.5\n",
		"gavel_pairs.csv":       "gpu_type,job1,job2,norm1,norm2\nv100,A,B,0.5,0.75\n",
		"lucid_pairs.csv":       "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\nx,d,8,0,0.9,y,e,4,1,0.6\n",
		"lucid_single.csv":      "model,dataset,batchsize,amp,gpu_util,gmem\nx,d,8,0,25.5,1000.2\n",
	})
	steps, err := LoadSteps(dir)
	if err != nil || steps[StepKey{"v100", "A (batch size 1)", 2}] != 12.5 {
		t.Errorf("steps %v, %v", steps, err)
	}
	for _, c := range []struct {
		table, gpu, a, b string
		want             [2]float64
	}{{"gavel", "V100", "A", "B", [2]float64{0.5, 0.75}}, {"lucid", "any", "x/d/8/0", "y/e/4/1", [2]float64{0.9, 0.6}}} {
		p, err := LoadPairs(dir, c.table)
		if err != nil {
			t.Fatal(err)
		}
		var out [2]float64
		p.Speeds(c.gpu, []slowdown.Load{{Model: c.a}, {Model: c.b}}, out[:])
		if out != c.want {
			t.Errorf("%s: speeds %v, want %v", c.table, out, c.want)
		}
	}
	w := &workload.Workload{Jobs: []workload.Job{{ID: "a", GPUs: 1}, {ID: "b", GPUs: 1, MemMiB: 7}, {ID: "c"}, {ID: "d", GPUs: 1, Milli: 500}}}
	given, err := AssignLucid(w, dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	if j := given.Jobs[0]; j.Model != "x/d/8/0" || j.MemMiB != 1001 || j.UsedMilli != 255 {
		t.Errorf("a job without memory became %+v", j)
	}
	for _, j := range given.Jobs[1:] {
		if j.Model != "" {
			t.Errorf("job %s, of which enough is known, became %s", j.ID, j.Model)
		}
	}
	if _, err := LoadPairs(t.TempDir(), "gavel-physical"); err == nil {
		t.Error("a table that is not there was read")
	}
}

// TestBadTables: a hole in a table is an error, not a pair less.
func TestBadTables(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no number":     "gpu_type,job1,job2,norm1,norm2\nv100,A,B,x,0.75\n",
		"no column":     "gpu_type,job1,job2,norm1\nv100,A,B,1\n",
		"out of bounds": "gpu_type,job1,job2,norm1,norm2\nv100,A,B,-1,0.75\n",
	} {
		if _, err := LoadPairs(folder(t, map[string]string{"gavel_pairs.csv": text}), "gavel"); err == nil {
			t.Errorf("%s: was read", name)
		}
	}
}

// TestAssignmentIsByJob: what a job gets does not depend on who else is there.
func TestAssignmentIsByJob(t *testing.T) {
	t.Parallel()
	all := &workload.Workload{Jobs: []workload.Job{{ID: "a", GPUs: 1}, {ID: "b", GPUs: 1}, {ID: "c", GPUs: 1}}}
	one := &workload.Workload{Jobs: []workload.Job{{ID: "b", GPUs: 1}}}
	x, y := AssignUniform(all, 5).Jobs[1], AssignUniform(one, 5).Jobs[0]
	if x.MemMiB != y.MemMiB || x.UsedMilli != y.UsedMilli || x.MemMiB < 1024 || x.UsedMilli < 200 || x.UsedMilli > 820 {
		t.Errorf("%+v beside others, %+v alone", x, y)
	}
	if z := AssignUniform(one, 6).Jobs[0]; z.MemMiB == y.MemMiB && z.UsedMilli == y.UsedMilli {
		t.Error("another seed gave the same")
	}
	if all.Jobs[0].MemMiB != 0 {
		t.Error("the workload itself was changed")
	}
}

func TestSqueeze(t *testing.T) {
	t.Parallel()
	w := &workload.Workload{}
	for i := range 101 {
		w.Jobs = append(w.Jobs, workload.Job{Submit: time.Duration(i) * time.Hour, Duration: time.Hour, GPUs: 4, Deadline: time.Duration(i+2) * time.Hour})
	}
	Squeeze(w, 16, 0.5)
	if d := Demand(w) / 16; math.Abs(d-0.5) > 0.001 {
		t.Errorf("demand %g, want 0.5", d)
	}
	if j := w.Jobs[10]; j.Deadline-j.Submit != 2*time.Hour {
		t.Errorf("a deadline moved from 2h after its arrival to %s", j.Deadline-j.Submit)
	}
}

func TestFleetFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w    workload.Workload
		want int
	}{
		{workload.Workload{Nodes: []workload.NodeSpec{{Count: 3, GPUs: 8}}}, 24},
		{workload.Workload{Form: "muri"}, 64}, {workload.Workload{Form: "sia"}, 64}, {workload.Workload{Form: "schedtune"}, 5},
		{workload.Workload{Jobs: []workload.Job{{Duration: time.Hour, GPUs: 17}}}, 24},
		{workload.Workload{Jobs: []workload.Job{{Duration: 24 * time.Hour, GPUs: 8}, {Duration: 24 * time.Hour, GPUs: 8}}}, 24}, // 16 wanted, 80 % of 20
	} {
		f, why := FleetFor(&c.w)
		if f.GPUs() != c.want || why == "" {
			t.Errorf("%s %s: %d GPUs (%s), want %d", c.w.Name, c.w.Form, f.GPUs(), why, c.want)
		}
		if err := f.Check(); err != nil {
			t.Errorf("%s %s: %v", c.w.Name, c.w.Form, err)
		}
	}
}

// TestNamesPlayNoPart: a list is run on the same cluster whatever it is called.
func TestNamesPlayNoPart(t *testing.T) {
	t.Parallel()
	jobs := []workload.Job{{Duration: time.Hour, GPUs: 17}}
	a, _ := FleetFor(&workload.Workload{Name: "lucid-window/v2", Jobs: jobs})
	b, _ := FleetFor(&workload.Workload{Name: "x", Jobs: jobs})
	if a.GPUs() != b.GPUs() {
		t.Errorf("%d GPUs by one name, %d by another", a.GPUs(), b.GPUs())
	}
}

func TestParseFleet(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{"8x8": 64, "3x4:V100": 12, "x": 0, "8": 0, "axb": 0, "dir/8x8": 0, "8x8.yaml": 0} {
		f, ok := ParseFleet(s)
		if ok != (want > 0) || f.GPUs() != want {
			t.Errorf("%q: %d GPUs, %v; want %d", s, f.GPUs(), ok, want)
		}
	}
}

// TestComplete fills in what is published, assumes the rest aloud, and leaves
// what is given.
func TestComplete(t *testing.T) {
	t.Parallel()
	list := []workload.NodeSpec{{Count: 1, GPUs: 1, GPUType: "T4"}, {Count: 1, GPUs: 1, GPUType: "G2"}, {Count: 1, GPUs: 1, GPUType: "T4", MemMiB: 7, IdleW: 1, MaxW: 2}, {Count: 1}}
	f := workload.Fleet{Nodes: list}
	notes := Complete(&f)
	if n := f.Nodes[0]; n.MaxW != 70 || n.MemMiB < 14000 || list[0].MaxW != 0 {
		t.Errorf("a T4 became %+v", n)
	}
	if n := f.Nodes[1]; n.MaxW != assumedMaxW || n.MemMiB != 0 || len(notes) != 1 || !strings.Contains(notes[0], `"G2"`) {
		t.Errorf("an unknown card became %+v, %q", n, notes)
	}
	if n := f.Nodes[2]; n != list[2] {
		t.Errorf("a card that was described became %+v", n)
	}
	if err := f.Check(); err != nil {
		t.Error(err)
	}
}

func TestInventedCardsHoldEveryJob(t *testing.T) {
	t.Parallel()
	for mem, want := range map[int64]int64{0: 16 << 10, 20 << 10: 24 << 10, 48 << 10: 48 << 10, 200 << 10: 200 << 10} {
		f, _ := FleetFor(&workload.Workload{Jobs: []workload.Job{{Duration: time.Hour, GPUs: 1, MemMiB: mem}}})
		if got := f.Nodes[0].MemMiB; got != want {
			t.Errorf("%d MiB: cards of %d MiB, want %d", mem, got, want)
		}
	}
}

// TestGuard bounds what a pack may yield.
func TestGuard(t *testing.T) {
	t.Parallel()
	path := filepath.Join(folder(t, map[string]string{"a.csv.gz": "x\n"}), "a.csv.gz")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := unpack(f)
	if err != nil {
		t.Fatal(err)
	}
	g, ok := r.(*guard)
	if !ok || !g.ratio {
		t.Fatalf("a packed file is read by %T", r)
	}
	g.n = freeBytes
	if _, err := g.Read(make([]byte, 8)); err != errBomb { //nolint:errorlint // it is not wrapped here
		t.Errorf("got %v, want %v", err, errBomb)
	}
}
