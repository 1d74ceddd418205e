package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// state is what must outlive the agent. It belongs to one boot: a boot resets the GPUs, and
// what is still wrong with them is found again.
type state struct {
	Boot string `json:"boot"`
	// Seq is the newest kernel log record that reported a fault; Seen says that there was one.
	Seq    uint64               `json:"seq"`
	Seen   bool                 `json:"seen"`
	Faults map[string]heldFault `json:"faults"`
}

// heldFault keeps a GPU from new attempts until an administrator resumes it.
type heldFault struct {
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
	Xid    int       `json:"xid"`
	Action Action    `json:"action"`
	Lost   bool      `json:"lost"`
}

// loadState reads what an agent of the same boot left; if there is nothing, or an error, it
// returns an empty state.
func loadState(path, boot string) (state, error) {
	empty := state{Boot: boot, Faults: map[string]heldFault{}}
	if path == "" {
		return empty, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	var st state
	if err := json.Unmarshal(data, &st); err != nil {
		return empty, fmt.Errorf("%s: %w", path, err)
	}
	if st.Boot != boot {
		return empty, nil
	}
	if st.Faults == nil {
		st.Faults = map[string]heldFault{}
	}
	return st, nil
}

// save replaces the stored state atomically.
func (s *state) save(path string) error {
	if path == "" {
		return nil
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
