package interfere

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Pair is one measured pair of jobs that shared a GPU.
type Pair struct {
	GPUType        string
	Mode           Mode
	A, B           Job
	SpeedA, SpeedB float64
}

// maxTableBytes bounds what is read of one unpacked table.
const maxTableBytes = 64 << 20

// table is a CSV file with a header.
type table struct {
	path string
	col  map[string]int
	rows [][]string
}

func readTable(path string) (*table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open pair data: %w", err)
	}
	defer f.Close() // only read
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", path, err)
	}
	rows, err := csv.NewReader(io.LimitReader(z, maxTableBytes)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("read %s: no header", path)
	}
	t := &table{path: path, col: make(map[string]int), rows: rows[1:]}
	for i, name := range rows[0] {
		t.col[name] = i
	}
	return t, nil
}

// need says which of the columns are missing.
func (t *table) need(names ...string) error {
	for _, n := range names {
		if _, ok := t.col[n]; !ok {
			return fmt.Errorf("read %s: no column %q", t.path, n)
		}
	}
	return nil
}

func (t *table) text(row int, col string) string { return t.rows[row][t.col[col]] }

func (t *table) number(row int, col string) (float64, error) {
	v, err := strconv.ParseFloat(t.text(row, col), 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: line %d: column %q: %w", t.path, row+2, col, err)
	}
	return v, nil
}

// lucidType is the GPU on which Lucid's authors (Hu et al., ASPLOS 2023) are
// taken to have measured; the data itself names none.
const lucidType = "RTX-3090"

// ReadLucid reads Lucid's pairs, lucid_pairs.csv.gz and lucid_single.csv.gz of a
// directory: two jobs on one GPU, taken to be time-slicing, with the utilization
// and bandwidth that each had alone. Signatures are model, data set, batch size and
// precision; families are models. That data is for non-commercial use: measure
// with it, ship nothing fitted to it.
func ReadLucid(dir string) ([]Pair, error) {
	singles, err := readTable(filepath.Join(dir, "lucid_single.csv.gz"))
	if err != nil {
		return nil, err
	}
	if err := singles.need("model", "dataset", "batchsize", "amp", "gpu_util", "gmem_util"); err != nil {
		return nil, err
	}
	jobs := make(map[string]Job)
	for i := range singles.rows {
		util, err := singles.number(i, "gpu_util")
		if err != nil {
			return nil, err
		}
		bw, err := singles.number(i, "gmem_util")
		if err != nil {
			return nil, err
		}
		sig := singles.lucidName(i, "")
		jobs[sig] = Job{Signature: sig, Family: singles.text(i, "model"), Util: util / 100, Bandwidth: bw / 100}
	}
	t, err := readTable(filepath.Join(dir, "lucid_pairs.csv.gz"))
	if err != nil {
		return nil, err
	}
	if err := t.need("model1", "dataset1", "batchsize1", "amp1", "speed1", "model2", "dataset2", "batchsize2", "amp2", "speed2"); err != nil {
		return nil, err
	}
	return t.pairs(func(i int, side string) (Job, error) {
		sig := t.lucidName(i, side)
		j, ok := jobs[sig]
		if !ok {
			return Job{}, fmt.Errorf("read %s: line %d: job %q is not in %s", t.path, i+2, sig, singles.path)
		}
		return j, nil
	}, "speed", func(int) (string, Mode) { return lucidType, TimeSlicing })
}

// lucidName is the signature of a job whose columns end in side.
func (t *table) lucidName(row int, side string) string {
	return strings.Join([]string{
		t.text(row, "model"+side), t.text(row, "dataset"+side), t.text(row, "batchsize"+side), t.text(row, "amp"+side),
	}, "/")
}

// gavelType gives Gavel's GPUs (Narayanan et al., OSDI 2020) the names of their
// likeliest variants; the data only says "v100".
func gavelType(name string) string {
	switch name {
	case "v100":
		return "V100-SXM2-16GB"
	case "p100":
		return "P100-PCIE-16GB"
	}
	return strings.ToUpper(name)
}

// ReadGavel reads one of Gavel's tables, gavel_pairs.csv.gz or
// gavel_pairs_physical.csv.gz: two jobs on one GPU, taken to be under MPS, by
// which Gavel shares. Utilizations are unknown. Signatures are model and batch size, families models. Pairs that
// did not run are left out. The data has no licence: measure with it, ship
// nothing fitted to it.
func ReadGavel(path string) ([]Pair, error) {
	t, err := readTable(path)
	if err != nil {
		return nil, err
	}
	if err := t.need("gpu_type", "job1", "job2", "norm1", "norm2"); err != nil {
		return nil, err
	}
	var ran [][]string
	for i := range t.rows {
		if notRun(t.text(i, "norm1")) || notRun(t.text(i, "norm2")) {
			continue
		}
		ran = append(ran, t.rows[i])
	}
	t.rows = ran
	return t.pairs(func(i int, side string) (Job, error) {
		sig := t.text(i, "job"+side)
		family, _, _ := strings.Cut(sig, " (")
		return Job{Signature: sig, Family: family, Util: Unknown, Bandwidth: Unknown}, nil
	}, "norm", func(i int) (string, Mode) { return gavelType(t.text(i, "gpu_type")), MPS })
}

func notRun(norm string) bool {
	v, err := strconv.ParseFloat(norm, 64)
	return norm == "" || err == nil && v == 0
}

// pairs reads each row by its two jobs, the columns of their speeds, which end
// in 1 and 2, and the place.
func (t *table) pairs(job func(row int, side string) (Job, error), speed string, where func(row int) (string, Mode)) ([]Pair, error) {
	out := make([]Pair, len(t.rows))
	for i := range t.rows {
		p := &out[i]
		p.GPUType, p.Mode = where(i)
		var err error
		if p.A, err = job(i, "1"); err != nil {
			return nil, err
		}
		if p.B, err = job(i, "2"); err != nil {
			return nil, err
		}
		if p.SpeedA, err = t.number(i, speed+"1"); err != nil {
			return nil, err
		}
		if p.SpeedB, err = t.number(i, speed+"2"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Observations are what both jobs of each pair showed, as the site's own
// measurements.
func Observations(pairs []Pair) []Observation {
	out := make([]Observation, 0, 2*len(pairs))
	for i := range pairs {
		p := &pairs[i]
		out = append(out,
			Observation{GPUType: p.GPUType, Mode: p.Mode, Job: p.A, Others: []Job{p.B}, Speed: p.SpeedA},
			Observation{GPUType: p.GPUType, Mode: p.Mode, Job: p.B, Others: []Job{p.A}, Speed: p.SpeedB})
	}
	return out
}
