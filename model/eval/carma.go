package eval

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/graph"
)

// Bounds of an archive of layer tables.
const (
	maxTables     = 4096
	maxTableBytes = 4 << 20
)

// readTables reads the layer tables of a file: a .model or .txt file, or a tar
// archive of them.
func readTables(b *builder, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	switch name := filepath.Base(path); {
	case strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz"):
		z, err := gzip.NewReader(f)
		if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		return b.tarTables(tar.NewReader(z))
	case strings.HasSuffix(name, ".tar"):
		return b.tarTables(tar.NewReader(f))
	case strings.HasSuffix(name, ".model") || strings.HasSuffix(name, ".txt"):
		return b.table(name, f)
	}
	return nil
}

func (b *builder) tarTables(r *tar.Reader) error {
	for range maxTables {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := b.table(filepath.Base(h.Name), r); err != nil {
			b.note(fmt.Sprintf("%s: %s: %v", b.folder, h.Name, err))
		}
	}
	return fmt.Errorf("holds more than %d files", maxTables)
}

func (b *builder) table(name string, r io.Reader) error {
	t, err := parseLayerTable(io.LimitReader(r, maxTableBytes))
	if err != nil {
		return err
	}
	b.tables[jobName(name)] = t
	return nil
}

// jobName returns a job's name without extensions and without what people write
// differently.
func jobName(s string) string {
	s = strings.ToLower(filepath.Base(s))
	for _, end := range []string{".model", ".rad", ".py", ".sh", ".txt"} {
		s = strings.TrimSuffix(s, end)
	}
	return plain(s)
}

// readCarma reads measured jobs of Yousefzadeh-Asl-Miandoab et al., "CARMA", whose
// models are in layer tables next to them or in an earlier folder.
func readCarma(b *builder, t *table) error {
	name := []string{"model", "job", "name", "workload", "model_name", "job_name", "task", "file", "script"}
	mem := []string{
		"peak_mem", "peak_memory", "measured_memory", "measured_mem", "actual_memory", "actual_mem", "real_memory", "real_mem", "gpu_memory", "gpu_mem",
		"gpu_memory_used", "memory_used", "mem_used", "memory_usage", "mem_usage", "max_memory", "max_mem", "memory", "mem", "measured", "actual", "peak",
	}
	wall := []string{"run_time", "runtime", "execution_time", "exec_time", "time", "duration", "wall", "wall_time", "et"}
	if err := t.has(name); err != nil {
		return err
	}
	if t.find(mem...) < 0 {
		return errors.New("has no column of measured memory")
	}
	for _, cells := range t.lines {
		l := line{t, cells}
		job := l.text(name...)
		run := carmaRun(job, l)
		lt, usual := b.tableOf(job, run.Batch)
		if lt == nil {
			b.skip("carma", Memory, "without a layer table")
			continue
		}
		run.Batch = cmp.Or(run.Batch, usual)
		f, ok := lt.features(run)
		if !ok {
			f, ok = lt.transformer.features(run)
		}
		if !ok {
			b.skip("carma", Memory, "with a layer table that lacks sizes")
			continue
		}
		r := b.row(l, "carma", cmp.Or(l.text("gpu", "gpu_name", "device"), "A100-SXM4-40GB"))
		r.Model = strings.ToLower(strings.TrimSuffix(filepath.Base(job), filepath.Ext(job)))
		r.Family = familyOf(r.Model)
		f.Model = r.Model
		r.Sample.Features = f
		v, _ := l.mib(false, mem...)
		r.Sample.PeakMiB = whole(v)
		r.Sample.Seconds, _ = l.seconds(wall...)
		r.Sample.Steps = l.count("steps", "iterations")
		r.Sample.Censored = l.flag("oom") || strings.Contains(strings.ToLower(l.text("status")), "oom")
		b.add(Memory, r)
		if r.Sample.Seconds > 0 && r.Sample.Steps > 0 {
			b.add(Time, r)
		}
	}
	return nil
}

var batchInName = regexp.MustCompile(`_(\d{1,5})(?:_|\.|$)`)

// carmaRun returns how a job runs: as its line says, else as in CARMA's scripts.
// All train in FP32; vision models with Adam, AdamW on CIFAR-100 and for
// segmentation, language models with AdamW on 512 tokens.
func carmaRun(job string, l line) model.Run {
	run := model.Run{Mode: model.Training, Precision: graph.FP32, Optimizer: graph.Adam, Framework: "pytorch"}
	if p := l.text("precision"); p != "" {
		run.Precision = precisionOf(p)
	}
	n := plain(job)
	lm := strings.Contains(n, "bert") || strings.Contains(n, "gpt") || strings.Contains(n, "xlnet")
	if lm || strings.Contains(n, "cifar") || strings.Contains(n, "unet") {
		run.Optimizer = graph.AdamW
	}
	if strings.Contains(n, "maskrcnn") || strings.Contains(n, "dlrm") {
		run.Optimizer = graph.SGD
	}
	run.Batch = l.count("batch_size", "batch", "bs")
	if lm {
		run.SeqLen = cmp.Or(max(l.count("seq_len", "max_seq_length", "sequence_length"), 0), 512)
	}
	if m := batchInName.FindStringSubmatch(job); run.Batch == 0 && m != nil {
		if v, _, _ := numberOf(m[1]); v >= smallestNamed {
			run.Batch = v
		}
	}
	if gpus := l.count("n_gpus", "num_gpus", "gpus", "gpu_count"); gpus > 1 { // DataParallel splits a batch
		run.Batch = (run.Batch + gpus - 1) / gpus
	}
	return run
}

// smallestNamed is the smallest number in a job's name that is taken for its batch:
// lower ones count repetitions or GPUs.
const smallestNamed = 16

// tableOf finds the layer table of a job, and the batch to assume if none is known.
// Names match exactly, with the batch appended, or without the part after the last
// '_' or the digits of a version; as a last resort a name may be the prefix of
// exactly one table's name.
func (b *builder) tableOf(job string, batch int64) (*layerTable, int64) {
	base := strings.ToLower(filepath.Base(job))
	for short := base; short != ""; short = shorter(short) {
		key := jobName(short)
		for _, k := range []string{key, fmt.Sprint(key, batch)} {
			if t := b.tables[k]; t != nil && key != "" {
				return t, usual(t, jobName(base))
			}
		}
	}
	var only *layerTable
	for k, t := range b.tables {
		if strings.HasPrefix(k, jobName(base)) {
			if only != nil {
				return nil, 0
			}
			only = t
		}
	}
	if only == nil {
		return nil, 0
	}
	return only, usual(only, jobName(base))
}

var version = regexp.MustCompile(`v?\d+$`)

// shorter drops a version, or the part after the last '_', '-' or '.'; it returns
// "" if nothing is left to drop.
func shorter(s string) string {
	if cut := version.ReplaceAllString(s, ""); cut != s {
		return strings.TrimRight(cut, "_-.")
	}
	return s[:max(0, strings.LastIndexAny(s, "_-."))]
}

func usual(t *layerTable, key string) int64 {
	if t.batch > 0 {
		return t.batch
	}
	return usualBatch(key)
}

// usualBatch returns the batch of CARMA's scripts whose names do not contain it.
func usualBatch(key string) int64 {
	switch {
	case strings.Contains(key, "bert"):
		return 32
	case strings.Contains(key, "gpt"), strings.Contains(key, "xlnet"):
		return 8
	}
	return 64
}
