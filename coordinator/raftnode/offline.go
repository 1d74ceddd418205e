package raftnode

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"
)

const (
	// skippedFile lists the entries that were skipped in a directory, one per line.
	skippedFile = "skipped"
	// skipMark begins the data of an entry that replaces a skipped one.
	skipMark = "berth: skipped by an administrator: "
)

// Offline is the directory of a node that is not running. While it is open the node
// cannot start.
type Offline struct {
	dir  string
	lock *os.File // nil if the directory has none
	st   stored
}

// OpenOffline checks the directory of a stopped node as Preflight does. The error
// is a *CorruptError if it is damaged.
func OpenOffline(dir string) (*Offline, error) {
	if _, err := os.Stat(filepath.Join(dir, identityFile)); err != nil {
		return nil, fmt.Errorf("%s is not the data directory of a coordinator: %w", dir, err)
	}
	o := &Offline{dir: dir}
	f, err := os.Open(filepath.Join(dir, lockFile))
	switch {
	case err == nil:
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, errors.Join(fmt.Errorf("%s is in use by a coordinator that runs; stop it first, or look at a copy", dir), f.Close())
		}
		o.lock = f
	case !errors.Is(err, fs.ErrNotExist): // a copy may lack it
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if o.st, err = inspect(dir, Reads{}); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// Close lets the node start again.
func (o *Offline) Close() error {
	if o.lock == nil {
		return nil
	}
	return o.lock.Close()
}

// Holds returns the first and the last entry of the log, 0 if it is empty, and the
// last entry in the newest snapshot, 0 without one.
func (o *Offline) Holds() (first, last, snapshot uint64) {
	return o.st.first, o.st.last, o.st.snapshot
}

// Snapshot opens what the state machine wrote into the newest snapshot.
func (o *Offline) Snapshot() (io.ReadCloser, error) {
	snaps, err := o.snapshots()
	if err != nil {
		return nil, err
	}
	list, err := snaps.List()
	if err != nil || len(list) == 0 {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	_, rc, err := snaps.Open(list[0].ID)
	return rc, err
}

func (o *Offline) snapshots() (*snapshots, error) {
	return openSnapshots(o.dir, fmt.Sprintf(remedyRejoin, o.dir), func(error) {}, newHclog(slog.New(slog.DiscardHandler)))
}

func (o *Offline) store(mode boltMode) (*store, error) {
	file := filepath.Join(o.dir, logFile)
	bolt, err := openBolt(file, mode)
	if err != nil {
		return nil, fmt.Errorf("open log %s: %w", file, err)
	}
	return newStore(bolt, file, fmt.Sprintf(remedyRejoin, o.dir)), nil
}

// Entry is a log entry.
type Entry struct {
	Index, Term uint64
	// Command means that the state machine is given Data; others are Raft's own, or
	// replace a skipped one, and then Skipped says which.
	Command bool
	Data    []byte
	Skipped string
	Type    string // Raft's name
}

// Entries calls visit with each entry from one on, in order, until it returns an
// error, which Entries returns.
func (o *Offline) Entries(from uint64, visit func(Entry) error) (err error) {
	s, err := o.store(readOnly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i := max(from, o.st.first, 1); i <= o.st.last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			return err
		}
		note, _ := skipNote(&l)
		if err := visit(Entry{Index: l.Index, Term: l.Term, Command: l.Type == raft.LogCommand, Data: l.Data, Skipped: note, Type: l.Type.String()}); err != nil {
			return err
		}
	}
	return nil
}

// skipNote returns what replaced a skipped entry, and whether l is one.
func skipNote(l *raft.Log) (string, bool) {
	note, ok := bytes.CutPrefix(l.Data, []byte(skipMark))
	if !ok || l.Type != raft.LogNoop {
		return "", false
	}
	return string(note), true
}

// Skip replaces entry index with one that the state machine is not given. The
// replacement is the same wherever the same entry is skipped, and every node that
// has the entry and starts again must skip it: otherwise states differ. The
// directory's file of skipped entries is written first. An entry that is already
// skipped is left as it is.
func (o *Offline) Skip(index uint64, now time.Time) (note string, err error) {
	switch {
	case index <= o.st.snapshot:
		return "", fmt.Errorf("entry %d is in this coordinator's snapshot, which ends at %d: it was applied here; move %s away, and the coordinator rejoins from the others",
			index, o.st.snapshot, o.dir)
	case index < o.st.first || index > o.st.last || o.st.last == 0:
		return "", fmt.Errorf("entry %d is not in this coordinator's log, which goes from %d to %d; if another coordinator has it, skip it there", index, o.st.first, o.st.last)
	}
	s, err := o.store(readWrite)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var l raft.Log
	if err := s.GetLog(index, &l); err != nil {
		return "", err
	}
	if note, done := skipNote(&l); done {
		return note, nil
	}
	if l.Type != raft.LogCommand {
		return "", fmt.Errorf("entry %d is one of Raft's own, which the state machine is not given; nothing was done", index)
	}
	sum := sha256.Sum256(l.Data)
	note = fmt.Sprintf("entry %d, term %d, %d bytes, SHA-256 %s", index, l.Term, len(l.Data), hex.EncodeToString(sum[:]))
	if err := o.record(now.UTC().Format(time.RFC3339) + " " + note + "\n"); err != nil {
		return "", err
	}
	l.Type, l.Data = raft.LogNoop, []byte(skipMark+note)
	return note, s.StoreLog(&l)
}

// record appends to the list of skipped entries, and returns once that is on disk.
func (o *Offline) record(line string) error {
	f, err := os.OpenFile(filepath.Join(o.dir, skippedFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("record what is skipped: %w", err)
	}
	_, err = f.WriteString(line)
	if err = errors.Join(err, f.Sync(), f.Close(), syncDir(o.dir)); err != nil {
		return fmt.Errorf("record what is skipped: %w", err)
	}
	return nil
}

// Skipped returns a line for each entry that was skipped in a directory.
func Skipped(dir string) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(dir, skippedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what was skipped: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n"), nil
}

// Recover makes servers the only members, for a cluster that has lost its majority
// for good. Everything in the log is taken as committed, applied to f, which must
// be empty, and kept as a snapshot.
func (o *Offline) Recover(f raft.FSM, servers []Server) (err error) {
	b, err := os.ReadFile(filepath.Join(o.dir, identityFile))
	if err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	_, self, err := parseIdentity(string(b))
	if err != nil {
		return fmt.Errorf("recover: %s: %w", identityFile, err)
	}
	var conf raft.Configuration
	member := false
	for _, s := range servers {
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Addr)})
		member = member || s.ID == self
	}
	if !member {
		return fmt.Errorf("recover: coordinator %q, whose directory %s is, is not among the members", self, o.dir)
	}
	snaps, err := o.snapshots()
	if err != nil {
		return err
	}
	s, err := o.store(readWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer func() {
		if r := recover(); r != nil { // the state machine stops at what it cannot read
			err = fmt.Errorf("recover: nothing was changed: %v", r)
		}
	}()
	rc := raft.DefaultConfig()
	rc.LocalID, rc.Logger = raft.ServerID(self), newHclog(slog.New(slog.DiscardHandler))
	// The transport only formats addresses, for long obsolete releases of Raft.
	_, spells := raft.NewInmemTransport("")
	if err := raft.RecoverCluster(rc, f, s, s, snaps, spells, conf); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}
