package raftnode

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/raft"
)

// How far above its copy's numbers a restored cluster begins. Agents refuse terms
// and fencing tokens below those that they have seen, and the lost cluster may have
// run for long after the copy was taken.
const (
	indexAhead = 1 << 32
	termAhead  = 1 << 20
)

// Restored is what a directory is created from.
type Restored struct {
	// Dir is created if it is missing, and must be empty otherwise.
	Dir           string
	ClusterID, ID string
	// Servers are the voters. Each of them is restored from the same copy, or joins
	// empty once most of them run.
	Servers []Server
	// Index and Term are of the last entry in the state.
	Index, Term uint64
	// State writes what the state machine reads back.
	State func(io.Writer) error
}

// Restore creates the directory of a node that was never started from a copy of the
// state. The identity is written last, so an unfinished directory is never served:
// remove it and begin again.
func Restore(r Restored) (err error) {
	if !slices.ContainsFunc(r.Servers, func(s Server) bool { return s.ID == r.ID }) {
		return fmt.Errorf("restore: coordinator %q is not among the members", r.ID)
	}
	if err := refuseFull(r.Dir); err != nil {
		return err
	}
	dir, err := openDir(r.Dir, r.ClusterID, r.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.close()) }()
	file := filepath.Join(r.Dir, logFile)
	bolt, err := openBolt(file, readWrite)
	if err != nil {
		return fmt.Errorf("make log %s: %w", file, err)
	}
	err = newStore(bolt, file, "").SetUint64([]byte(keyTerm), r.Term+termAhead)
	if err = errors.Join(err, bolt.Close()); err != nil {
		return fmt.Errorf("make log %s: %w", file, err)
	}
	if err := r.writeState(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := Preflight(r.Dir); err != nil {
		return err
	}
	return dir.writeIdentity(r.ClusterID, r.ID)
}

// refuseFull refuses a directory with anything in it.
func refuseFull(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("data directory %s is not empty (%s is in it): stop the coordinator, move the directory away and keep it until the restored cluster is as it should be",
			path, entries[0].Name())
	}
	return nil
}

// writeState writes the state as the newest snapshot.
func (r *Restored) writeState() error {
	snaps, err := openSnapshots(r.Dir, "", func(error) {}, newHclog(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	var conf raft.Configuration
	for _, s := range r.Servers {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Addr)})
	}
	// The transport only formats addresses, for long obsolete releases of Raft.
	_, spells := raft.NewInmemTransport("")
	index := r.Index + indexAhead
	sink, err := snaps.Create(raft.SnapshotVersionMax, index, r.Term, conf, index, spells)
	if err != nil {
		return err
	}
	if err := r.State(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}
