package containerdrt

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/berth-scheduler/berth/agent/runtime"
	"github.com/berth-scheduler/berth/cluster"
)

// Kinds of files in Config.Dir, one of each per attempt.
const (
	kindTry     = "try"     // how often its container was created
	kindHelper  = "helper"  // the helper's instructions
	kindStarted = "started" // when its first process was released
	kindSignal  = "signal"  // the signal on whose behalf Signal killed it
	kindExit    = "exit"    // how it ended
)

// records are the files that a node keeps about its attempts.
type records struct{ dir string }

// file returns the path of an attempt's record of a kind.
func (r records) file(id cluster.AttemptID, kind string) string {
	return filepath.Join(r.dir, id.String()+"."+kind)
}

// startedAt returns when the first process was about to be released, zero if it never was.
func (r records) startedAt(id cluster.AttemptID) time.Time {
	data, err := os.ReadFile(r.file(id, kindStarted))
	if err != nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, string(data))
	if err != nil {
		return time.Time{}
	}
	return t
}

// writeExit records an exit on disk before the task may be deleted.
func (r records) writeExit(id cluster.AttemptID, t *runtime.Task) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	tmp := r.file(id, kindExit+".new")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	if err := os.Rename(tmp, r.file(id, kindExit)); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	d, err := os.Open(r.dir)
	if err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// readExit fills in how a task ended, and reports whether that is known.
func (r records) readExit(id cluster.AttemptID, t *runtime.Task) (bool, error) {
	data, err := os.ReadFile(r.file(id, kindExit))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, t); err != nil {
		return false, fmt.Errorf("exit record of %s: %w", id, err)
	}
	return true, nil
}

// actedFor returns the signal on whose behalf Signal killed a task.
func (r records) actedFor(id cluster.AttemptID) (syscall.Signal, bool) {
	data, err := os.ReadFile(r.file(id, kindSignal))
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(data))
	return syscall.Signal(n), err == nil
}

// begin records that from here on the task may have run, even if we die.
func (r records) begin(id cluster.AttemptID) error {
	return os.WriteFile(r.file(id, kindStarted), []byte(time.Now().Format(time.RFC3339Nano)), 0o600)
}

// forget removes all records of an attempt except the number of its tries.
func (r records) forget(id cluster.AttemptID) error {
	for _, kind := range []string{kindHelper, kindStarted, kindSignal, kindExit} {
		if err := os.Remove(r.file(id, kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
