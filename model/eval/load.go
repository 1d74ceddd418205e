package eval

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/model"
	"github.com/berth-scheduler/berth/model/gpuspec"
)

// reader turns the tables of one folder into rows.
type reader struct {
	// table reads one file; the error says why its columns are not understood.
	table func(b *builder, t *table) error
	// other reads files that are not tables, before the tables; nil for none.
	other func(b *builder, path string) error
}

// readers returns the known data sets, by folder.
func readers() map[string]reader {
	return map[string]reader{
		"schedtune":     {table: readSchedTune},
		"timm_mem_a100": {table: readTimmMemory},
		"timm_speed":    {table: readTimmSpeed},
		"gpumemnet":     {table: readGPUMemNet},
		"sia":           {table: readSia},
		"lambda_bench":  {table: readLambda},
		"neusight":      {table: readNeuSight},
		"litgpt":        {table: readLitGPT},
		"carma":         {table: readCarma, other: readTables},
		"carma_models":  {table: readCarma, other: readTables},
		profileFolder:   {table: readProfile},
	}
}

// Loader reads data sets, one folder each, ignoring unknown folders and files. It
// remembers the layer tables that it has read, for a later directory that has
// measurements of their models. It is not safe for concurrent use.
type Loader struct {
	// Note is called for each thing that is left out; may be nil.
	Note   func(string)
	tables map[string]*layerTable
}

// Load reads the data sets under dir, sorted by data set and target. It returns an
// error if dir or a data set in it cannot be read, or if there is none.
func (ld *Loader) Load(dir string) ([]Set, error) {
	note := ld.Note
	if note == nil {
		note = func(string) {}
	}
	if ld.tables == nil {
		ld.tables = map[string]*layerTable{}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read data sets: %w", err)
	}
	known := readers()
	b := &builder{note: note, sets: map[setKey]*Set{}, tables: ld.tables}
	for _, e := range entries { // ReadDir sorts
		r, ok := known[kindOf(folder(e.Name()))]
		switch {
		case !isDir(dir, e):
			continue
		case !ok:
			note(e.Name() + ": no data set that can be scored is known by this name")
			continue
		}
		b.folder = folder(e.Name())
		if err := b.read(filepath.Join(dir, e.Name()), r); err != nil {
			return nil, fmt.Errorf("read data set %s: %w", e.Name(), err)
		}
	}
	out := b.finish()
	if len(out) == 0 {
		return nil, fmt.Errorf("read data sets: %s holds none that are known; its folders must be named like one of %s",
			dir, strings.Join(folders(), ", "))
	}
	return out, nil
}

// folder returns the name of a folder's data set: case does not matter, and
// "carma_models" is the part of "carma" that holds layer tables.
func folder(name string) string {
	return strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

// kindOf returns the name under which the reader of a folder is registered.
func kindOf(folder string) string {
	if strings.HasPrefix(folder, profileFolder+"_") {
		return profileFolder
	}
	return folder
}

func folders() []string { return slices.Sorted(maps.Keys(readers())) }

// isDir follows links, since data is often linked from elsewhere.
func isDir(dir string, e fs.DirEntry) bool {
	if e.IsDir() {
		return true
	}
	info, err := os.Stat(filepath.Join(dir, e.Name()))
	return err == nil && info.IsDir()
}

type setKey struct {
	dataset string
	target  Target
}

// builder collects rows into sets.
type builder struct {
	note   func(string)
	folder string
	file   string // of the current table
	sets   map[setKey]*Set
	tables map[string]*layerTable // by jobName
}

func (b *builder) read(dir string, r reader) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var tables []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasSuffix(path, ".csv") || strings.HasSuffix(path, ".csv.gz"):
			tables = append(tables, path)
		case r.other != nil && !e.IsDir():
			if err := r.other(b, path); err != nil {
				b.note(fmt.Sprintf("%s/%s: %v", b.folder, e.Name(), err))
			}
		}
	}
	for _, path := range tables {
		t, err := readTable(path)
		if errors.Is(err, fs.ErrPermission) {
			return err
		}
		if err == nil {
			b.file = t.file
			err = r.table(b, t)
		}
		if err != nil {
			b.note(fmt.Sprintf("%s/%s: not read: it %v", b.folder, filepath.Base(path), err))
		}
	}
	return nil
}

func (b *builder) set(dataset string, t Target) *Set {
	k := setKey{dataset, t}
	if b.sets[k] == nil {
		b.sets[k] = &Set{Dataset: dataset, Target: t, Skipped: map[string]int{}}
	}
	return b.sets[k]
}

func (b *builder) skip(dataset string, t Target, reason string) { b.set(dataset, t).Skipped[reason]++ }

// add adds a row to the set of a target, if its target was measured and its
// features are valid.
func (b *builder) add(t Target, r Row) {
	r.GPU = gpuspec.Normalize(r.GPU)
	r.Sample.GPUType = r.GPU
	r.Label = cmp.Or(r.Label, NVIDIASMI)
	if len(r.Sample.Features.Model) > model.MaxModelName {
		r.Sample.Features.Model = r.Sample.Features.Model[:model.MaxModelName]
	}
	switch err := r.Sample.Features.Check(); {
	case err != nil:
		b.skip(r.Dataset, t, "with features out of range")
	case !r.Sample.Censored && !(r.actual(t) > 0):
		b.skip(r.Dataset, t, "not measured")
	default:
		s := b.set(r.Dataset, t)
		s.Rows = append(s.Rows, r)
	}
}

// finish returns the sets that have rows, or skipped lines, sorted.
func (b *builder) finish() []Set {
	var out []Set
	for _, s := range b.sets {
		out = append(out, *s)
	}
	order := Targets()
	slices.SortFunc(out, func(x, y Set) int {
		if c := strings.Compare(x.Dataset, y.Dataset); c != 0 {
			return c
		}
		return slices.Index(order, x.Target) - slices.Index(order, y.Target)
	})
	return out
}
