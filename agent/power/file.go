package power

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// file is where the keeper stores its GPUs. It is replaced, never changed.
type file struct{ path string }

func fileIn(dir string) file { return file{filepath.Join(dir, "power.json")} }

// load reads the file; a missing one counts as empty.
func (f file) load(cards *map[string]*held) error {
	data, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var got map[string]*held
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	for uuid, h := range got {
		if uuid == "" || h == nil || h.WasMilliW < 0 {
			err = errors.Join(err, fmt.Errorf("GPU %q with no sense", uuid))
		}
	}
	if err != nil {
		return fmt.Errorf("what GPUs were set to cannot be read: %s: %w; move the file away, start again, and look at the limits with nvidia-smi -q -d POWER", f.path, err)
	}
	if got != nil {
		*cards = got
	}
	return nil
}

// save returns when the GPUs are on disk.
func (f file) save(cards map[string]*held) error {
	data, err := json.Marshal(cards)
	if err != nil {
		return err
	}
	w, err := os.OpenFile(f.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	if err = errors.Join(err, w.Sync(), w.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.path+".new", f.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
