package trace

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// find looks for a table in a folder, or in the subfolder of its makers.
func find(dir, sub, name string) (string, error) {
	for _, p := range []string{
		filepath.Join(dir, sub, name+".csv.gz"), filepath.Join(dir, name+".csv.gz"), filepath.Join(dir, sub, name+".csv"), filepath.Join(dir, name+".csv"),
	} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: holds no %s.csv.gz: %w", dir, name, os.ErrNotExist)
}

// each calls row for every row of a table; a bad row is an error, since a table
// with holes would omit slowdowns.
func each(path string, must []string, row func(*table) error) error {
	r, c, err := open(path)
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := newTable(filepath.Base(path), r)
	if err != nil {
		return err
	}
	if !t.has(must...) {
		return fmt.Errorf("%s: wants the columns %s", t.file, strings.Join(must, ", "))
	}
	for {
		bad, fatal := t.next()
		if errors.Is(fatal, io.EOF) {
			return nil
		}
		if err := errors.Join(bad, fatal); err != nil {
			return fmt.Errorf("%s: row %d: %w", t.file, t.row, err)
		}
		if err := row(t); err != nil {
			return fmt.Errorf("%s: row %d: %w", t.file, t.row, err)
		}
	}
}

// LoadSteps reads Gavel's table of training steps per second of jobs alone.
func LoadSteps(dir string) (map[StepKey]float64, error) {
	path, err := find(dir, "gavel", "gavel_isolated")
	if err != nil {
		return nil, err
	}
	out := map[StepKey]float64{}
	return out, eachStep(path, func(k StepKey, v float64) { out[k] = v })
}

// eachStep calls row for every row of Gavel's table of jobs alone.
func eachStep(path string, row func(StepKey, float64)) error {
	return each(path, []string{"gpu_type", "job", "scale_factor", "tput_alone"}, func(t *table) error {
		n, err := t.between(1, 1<<16, "scale_factor")
		v, err2 := t.between(0, 1e12, "tput_alone")
		row(StepKey{strings.ToLower(t.text("gpu_type")), t.text("job"), int(n)}, v)
		return errors.Join(err, err2)
	})
}

// LoadPairs reads a table of measured pairs: "gavel" and "gavel-physical" by type
// of GPU, "lucid" for one type that stands for all. Pairs that are not in it use
// the default curve.
func LoadPairs(dir, name string) (*slowdown.Pairs, error) {
	if name == "lucid" {
		return loadLucidPairs(dir)
	}
	stem := "gavel_pairs"
	if name == "gavel-physical" {
		stem = "gavel_pairs_physical"
	}
	return gavelPairs(dir, name, stem, func(float64, float64) bool { return true })
}

// gavelPairs reads the pairs of a table of Gavel's whose norms are to be kept.
func gavelPairs(dir, name, stem string, keep func(a, b float64) bool) (*slowdown.Pairs, error) {
	path, err := find(dir, "gavel", stem)
	if err != nil {
		return nil, err
	}
	p := slowdown.NewPairs(name, slowdown.DefaultCurve())
	return p, each(path, []string{"gpu_type", "job1", "job2", "norm1", "norm2"}, func(t *table) error {
		a, err := t.between(0, 1e3, "norm1")
		b, err2 := t.between(0, 1e3, "norm2")
		if typ, j1, j2 := t.text("gpu_type"), t.text("job1"), t.text("job2"); keep(a, b) {
			p.Set(typ, j1, j2, a)
			p.Set(typ, j2, j1, b)
		}
		return errors.Join(err, err2)
	})
}

// lucidName returns the name used here for a configuration in Lucid's tables.
func lucidName(model, dataset, batch, amp string) string {
	return model + "/" + dataset + "/" + batch + "/" + amp
}

func loadLucidPairs(dir string) (*slowdown.Pairs, error) {
	path, err := find(dir, "lucid", "lucid_pairs")
	if err != nil {
		return nil, err
	}
	p := slowdown.NewPairs("lucid", slowdown.DefaultCurve())
	return p, each(path, []string{"model1", "model2", "speed1", "speed2"}, func(t *table) error {
		a, err := t.between(0, 1e3, "speed1")
		b, err2 := t.between(0, 1e3, "speed2")
		one := lucidName(t.text("model1"), t.text("dataset1"), t.text("batchsize1"), t.text("amp1"))
		two := lucidName(t.text("model2"), t.text("dataset2"), t.text("batchsize2"), t.text("amp2"))
		p.Set("", one, two, a)
		p.Set("", two, one, b)
		return errors.Join(err, err2)
	})
}

// profile is what a program takes alone.
type profile struct {
	name       string
	mem, milli int64
}

// dice returns random numbers for one job: they depend on the seed and its id
// alone.
func dice(seed uint64, id string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte("profile\x00" + id))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// AssignLucid gives each job without memory figures one of the measured programs of
// Lucid's table, all equally likely.
func AssignLucid(w *workload.Workload, dir string, seed uint64) (*workload.Workload, error) {
	path, err := find(dir, "lucid", "lucid_single")
	if err != nil {
		return nil, err
	}
	var all []profile
	err = each(path, []string{"model", "dataset", "batchsize", "amp", "gpu_util", "gmem"}, func(t *table) error {
		mem, err := t.between(1, 1<<23, "gmem")
		util, err2 := t.between(0, 100, "gpu_util")
		all = append(all, profile{lucidName(t.text("model"), t.text("dataset"), t.text("batchsize"), t.text("amp")), int64(math.Ceil(mem)), max(1, int64(10*util))})
		return errors.Join(err, err2)
	})
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: holds no rows", path)
	}
	return assign(w, "memory and utilization are those of a program of Lucid's table, drawn for each job", func(j *workload.Job) {
		p := all[dice(seed, j.ID).IntN(len(all))]
		j.Model, j.MemMiB, j.UsedMilli = p.name, p.mem, p.milli
	}), nil
}

// AssignUniform gives each job without memory figures a utilization of 20 to 82 %
// and a memory of 1 to 7.6 GiB, each uniform: the first as Yeung et al. (HotCloud
// 2020) show, the second what fits an 8 GB GPU.
func AssignUniform(w *workload.Workload, seed uint64) *workload.Workload {
	return assign(w, "memory and utilization are uniform, 1 to 7.6 GiB and 20 to 82 %, drawn for each job", func(j *workload.Job) {
		r := dice(seed, j.ID)
		j.UsedMilli, j.MemMiB = 200+r.Int64N(621), 1024+r.Int64N(6759)
	})
}

func assign(w *workload.Workload, note string, give func(*workload.Job)) *workload.Workload {
	out := &workload.Workload{Name: w.Name, Form: w.Form, Nodes: w.Nodes, Jobs: slices.Clone(w.Jobs), Notes: append(slices.Clone(w.Notes), note)}
	for i := range out.Jobs {
		if j := &out.Jobs[i]; j.GPUs > 0 && j.MemMiB == 0 && j.Milli == 0 {
			give(j)
		}
	}
	return out
}
