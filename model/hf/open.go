package hf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/berth-scheduler/berth/model"
)

// The files of a checkpoint's directory.
const (
	configFile  = "config.json"
	adapterFile = "adapter_config.json"
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
)

// Model is the content of one checkpoint: its configuration, its weights' headers,
// or both.
type Model struct {
	Name    string
	Config  *Config  // nil for none
	Weights *Weights // nil for none
	// LoRARank is that of the adapter's own configuration, 0 for none.
	LoRARank int64
	// Notes says what could not be read or is inconsistent.
	Notes []string
}

// ErrKind is wrapped by Open's error for files of other kinds.
var ErrKind = errors.New("want config.json, a .safetensors file, its .index.json, or a directory of them")

// Reads reports whether Open reads files of this name; it always reads directories.
func Reads(name string) bool {
	base := filepath.Base(name)
	return strings.HasSuffix(base, ".safetensors") || strings.HasSuffix(base, ".json")
}

// Open reads a config.json, a .safetensors file, the .index.json of a sharded
// checkpoint, or a directory that holds them, as Hugging Face's tools write it.
// With weights it looks for their config.json, but not the other way round. Nothing
// outside the directory is read, be it by a path in the index or by a symbolic
// link; only in a snapshot of Hugging Face's cache may links lead to its blobs. A
// part that cannot be read becomes a note if another part can.
func Open(path string) (*Model, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	dir, base := filepath.Split(filepath.Clean(path))
	switch {
	case st.IsDir():
		dir, base = path, ""
	case base == adapterFile: // means little without its base model
		base = ""
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f, err := openFolder(abs)
	if err != nil {
		return nil, err
	}
	defer f.root.Close()
	f.named, f.path = base, path
	m := &Model{}
	switch {
	case base == "":
		m.Name = folderName(abs)
		err = m.directory(f)
	case strings.HasSuffix(base, ".index.json"):
		m.Name = folderName(abs)
		err = m.shards(f, base)
		m.beside(f)
	case strings.HasSuffix(base, ".safetensors"):
		m.Name = strings.TrimSuffix(base, ".safetensors")
		if base == weightsFile {
			m.Name = folderName(abs)
		}
		err = m.single(f, base)
		m.beside(f)
	case strings.HasSuffix(base, ".json"):
		m.Name = strings.TrimSuffix(base, ".json")
		if base == configFile {
			m.Name = folderName(abs)
		}
		err = m.config(f, base)
	default:
		return nil, fmt.Errorf("%s: %w", path, ErrKind)
	}
	if m.Config == nil && m.Weights == nil && err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		m.Notes = append(m.Notes, err.Error())
	}
	return m, nil
}

// folder is a directory outside which nothing is read.
type folder struct {
	root *os.Root
	at   string // of the directory, below root
	// named is the file that the user named, path its path: only that one may be a
	// link to anywhere.
	named, path string
}

// openFolder opens a directory; for a snapshot of the cache, the model's whole
// folder, since its files are links to ../../blobs.
func openFolder(abs string) (*folder, error) {
	top, at := abs, "."
	if up := filepath.Dir(abs); filepath.Base(up) == "snapshots" && strings.HasPrefix(filepath.Base(filepath.Dir(up)), "models--") {
		top, at = filepath.Dir(up), filepath.Join("snapshots", filepath.Base(abs))
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, err
	}
	return &folder{root: root, at: at}, nil
}

// folderName returns the name for the model of a directory.
func folderName(abs string) string {
	up := filepath.Dir(abs)
	if top := filepath.Base(filepath.Dir(up)); filepath.Base(up) == "snapshots" && strings.HasPrefix(top, "models--") {
		return top[strings.LastIndex(top, "--")+2:]
	}
	return filepath.Base(abs)
}

// read calls use with a regular file of the folder.
func (f *folder) read(name string, use func(io.Reader) error) error {
	const flags = os.O_RDONLY | syscall.O_NONBLOCK // a pipe must not block
	var file *os.File
	var err error
	if name == f.named {
		file, err = os.OpenFile(f.path, flags, 0)
	} else {
		file, err = f.root.OpenFile(filepath.Join(f.at, name), flags, 0)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%s: is not a regular file", name)
	}
	return use(file)
}

func (m *Model) config(f *folder, name string) error {
	return f.read(name, func(r io.Reader) error {
		c, err := parseConfig(r)
		if err != nil {
			return err
		}
		m.Config = &c
		return nil
	})
}

func (m *Model) single(f *folder, name string) error {
	return f.read(name, func(r io.Reader) error {
		w, err := ReadSafetensors(r)
		if err != nil {
			return err
		}
		m.Weights = &w
		return nil
	})
}

// shards reads an index and the headers of the shards present.
func (m *Model) shards(f *folder, name string) error {
	var x Index
	err := f.read(name, func(r io.Reader) (err error) {
		x, err = ReadIndex(r)
		return err
	})
	if err != nil {
		return err
	}
	w := &Weights{}
	missing := 0
	for _, s := range x.Shards {
		err := f.read(s, w.add)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing++
		case err != nil:
			missing++
			m.Notes = append(m.Notes, fmt.Sprintf("%s: %v", shorten(s), err))
			if len(m.Notes) > 8 {
				return fmt.Errorf("%s: too many of its files cannot be read", name)
			}
		}
	}
	if missing > 0 {
		w.Partial = true
		m.Notes = append(m.Notes, fmt.Sprintf("%d of %d files of weights are not there or not readable", missing, len(x.Shards)))
		w.fromIndex(&x)
	} else if x.TotalSize > 0 && (w.Bytes > x.TotalSize+x.TotalSize/100 || w.Bytes < x.TotalSize-x.TotalSize/100) {
		m.Notes = append(m.Notes, fmt.Sprintf("the index speaks of %d bytes, its files of %d", x.TotalSize, w.Bytes))
	}
	m.Weights = w
	return nil
}

// fromIndex trusts the index if shards are missing; values count as two bytes each
// if none could be seen.
func (w *Weights) fromIndex(x *Index) {
	if x.TotalSize > w.Bytes {
		per := int64(2)
		if w.Params > 0 && w.Bytes/w.Params > 2 {
			per = w.Bytes / w.Params
		}
		if w.WeightBits == 0 {
			w.Params = max(w.Params, x.TotalSize/per)
		}
		w.Bytes = x.TotalSize
	}
	w.Blocks = max(w.Blocks, x.Blocks)
}

// directory reads whatever a checkpoint's directory holds.
func (m *Model) directory(f *folder) error {
	m.beside(f)
	err := m.shards(f, indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = m.single(f, weightsFile)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names := f.list()
	if len(names) == 1 {
		return m.single(f, names[0])
	}
	if m.Config != nil { // then weights in another format do not matter
		return nil
	}
	if len(names) > 1 {
		return fmt.Errorf("holds %d .safetensors files and no %s; name one of them", len(names), indexFile)
	}
	return fmt.Errorf("holds neither %s nor %s", configFile, weightsFile)
}

// list names the folder's weight files, at most MaxShards.
func (f *folder) list() []string {
	dir, err := f.root.Open(f.at)
	if err != nil {
		return nil
	}
	defer dir.Close()
	all, _ := dir.Readdirnames(4 * MaxShards) // what was read of it counts
	all = slices.DeleteFunc(all, func(n string) bool { return !strings.HasSuffix(n, ".safetensors") })
	slices.Sort(all)
	return all[:min(len(all), MaxShards)]
}

// beside reads the configurations next to weights; a missing one is not an error.
func (m *Model) beside(f *folder) {
	if err := m.config(f, configFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Notes = append(m.Notes, fmt.Sprintf("%s: %v", configFile, err))
	}
	err := f.read(adapterFile, m.adapter)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.Notes = append(m.Notes, fmt.Sprintf("%s: %v", adapterFile, err))
	}
}

// adapter reads the rank in PEFT's adapter_config.json, and the model it is for.
func (m *Model) adapter(r io.Reader) error {
	data, err := readBounded(r, MaxConfigBytes)
	if err != nil {
		return err
	}
	o, err := parseObject(data, maxKeys)
	if err != nil {
		return err
	}
	var rank int64
	if err := o.number(&rank, "r"); err != nil {
		return err
	}
	if rank < 0 || rank > model.MaxLoRARank {
		return fmt.Errorf("rank %d: must be 0 to %d", rank, model.MaxLoRARank)
	}
	m.LoRARank = rank
	if m.Config == nil {
		if c, err := Lookup(o.text("base_model_name_or_path")); err == nil {
			m.Config = &c
		}
	}
	if m.Config != nil && o.has("target_modules") {
		m.Config.adaptTo(o.field["target_modules"])
	}
	return nil
}
