package raftnode

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Keys that Raft keeps outside its log.
const (
	keyTerm     = "CurrentTerm"
	keyVoteTerm = "LastVoteTerm"
	keyVoteFor  = "LastVoteCand"
)

// Preflight checks a stopped node's directory: the structure of the log file, the
// checksum of each entry, the newest snapshot, and that the log continues where the
// snapshot ends. It changes nothing, except for a file that it creates and removes
// to test that it can, and never panics. An empty or missing directory is fine. The
// error is a *CorruptError if the data is damaged; Open runs this first.
func Preflight(dir string) error {
	_, err := inspect(dir, Reads{})
	return err
}

// stored is what a directory holds.
type stored struct {
	snapshot    uint64 // index of the newest snapshot
	first, last uint64 // of the log
	term        uint64
	votes       int // records of votes
}

// ErrNewer is matched by errors of Open about data that is intact but that this
// program's state machine cannot read.
var ErrNewer = errors.New("a newer release wrote it, and nothing was changed; start that release or a later one here; docs/upgrades.md has the way back")

// inspect does Preflight's work, and checks that the state machine reads what is
// there.
func inspect(dir string, reads Reads) (st stored, err error) {
	c := &checker{dir: dir, reads: reads, file: filepath.Join(dir, logFile), remedy: fmt.Sprintf(remedyRejoin, dir)}
	// A fault in the file's map becomes a panic of this goroutine, which is
	// recovered; otherwise it would end the process.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = c.corrupt(c.file, 0, fmt.Sprintf("reading it panics: %v", r))
		}
	}()
	if err := c.checkSnapshots(); err != nil {
		return stored{}, err
	}
	return c.st, c.checkLog()
}

type checker struct {
	dir, file, remedy string
	reads             Reads
	st                stored
	indexes           []uint64
}

func (c *checker) corrupt(file string, index uint64, what string) error {
	return &CorruptError{File: file, Index: index, What: what, Remedy: c.remedy}
}

// checkSnapshots verifies every snapshot's description and the newest's state.
func (c *checker) checkSnapshots() error {
	base := filepath.Join(c.dir, snapshotDir)
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read snapshots: %w", err)
	}
	newest, newestTerm := "", uint64(0)
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		m, err := readMeta(base, e.Name())
		if err != nil {
			return c.corrupt(filepath.Join(base, e.Name(), "meta.json"), 0, err.Error())
		}
		if newest == "" || m.Term > newestTerm || m.Term == newestTerm && m.Index >= c.st.snapshot {
			newest, newestTerm, c.st.snapshot = e.Name(), m.Term, m.Index
		}
	}
	if newest == "" {
		return nil
	}
	s, err := openSnapshots(c.dir, c.remedy, func(error) {}, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	meta, rc, err := s.open(newest)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	info, err := os.Stat(filepath.Join(base, newest, "state.bin"))
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if want := meta.Size + int64(len(headerOf(meta))); info.Size() != want {
		return c.corrupt(filepath.Join(base, newest), 0, fmt.Sprintf("%d bytes, should be %d", info.Size(), want))
	}
	if c.reads.State != nil {
		if err := c.reads.State(rc); err != nil {
			return fmt.Errorf("%s: the snapshot that ends at %d: %w: %w", c.dir, meta.Index, err, ErrNewer)
		}
	}
	return nil
}

// readMeta reads the description of a snapshot and compares it with its name, which
// is term-index-time. Raft would pass over an unreadable one for an older one.
func readMeta(base, name string) (*raft.SnapshotMeta, error) {
	b, err := os.ReadFile(filepath.Join(base, name, "meta.json"))
	if err != nil {
		return nil, err
	}
	var m raft.SnapshotMeta
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("unreadable: %w", err)
	}
	parts := strings.Split(name, "-")
	if m.Version != 1 || m.ID != name || len(parts) != 3 ||
		parts[0] != strconv.FormatUint(m.Term, 10) || parts[1] != strconv.FormatUint(m.Index, 10) {
		return nil, fmt.Errorf("it describes snapshot %q, version %d, term %d, index %d", m.ID, m.Version, m.Term, m.Index)
	}
	return &m, nil
}

// checkLog verifies the log file.
func (c *checker) checkLog() error {
	f, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		_, idErr := os.Stat(filepath.Join(c.dir, identityFile))
		if idErr == nil || c.st.snapshot > 0 {
			return c.corrupt(c.file, 0, "it is missing, and with it this node's votes")
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := c.checkStructure(f); err != nil {
		return err
	}
	return c.checkRecords()
}

// checkStructure walks the file's pages and collects what is in the log.
func (c *checker) checkStructure(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	err = walkBolt(f, info.Size(), map[string]func(k, v []byte) error{
		"logs": func(k, _ []byte) error {
			if len(k) != 8 {
				return fmt.Errorf("entry with key %x", k)
			}
			c.indexes = append(c.indexes, binary.BigEndian.Uint64(k))
			return nil
		},
		"conf": func(k, _ []byte) error {
			switch string(k) {
			case keyTerm:
			case keyVoteTerm, keyVoteFor:
				c.st.votes++
			default:
				return fmt.Errorf("unknown value %q", k)
			}
			return nil
		},
	})
	if err != nil {
		return c.corrupt(c.file, 0, err.Error())
	}
	next := c.st.snapshot + 1
	for _, i := range c.indexes {
		if i <= c.st.snapshot {
			continue
		}
		if i != next {
			return c.corrupt(c.file, next, fmt.Sprintf("it is missing; the next one there is %d, the snapshot ends at %d", i, c.st.snapshot))
		}
		next++
	}
	if n := len(c.indexes); n > 0 {
		c.st.first, c.st.last = c.indexes[0], c.indexes[n-1]
	}
	return nil
}

// checkRecords verifies the checksums of entries, term and vote.
func (c *checker) checkRecords() error {
	bolt, err := openBolt(c.file, readOnly)
	if err != nil {
		return c.corrupt(c.file, 0, "it cannot be opened: "+err.Error())
	}
	defer func() { _ = bolt.Close() }()
	s := newStore(bolt, c.file, c.remedy)
	term := uint64(0)
	for _, i := range c.indexes {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			if errors.Is(err, raft.ErrLogNotFound) {
				return c.corrupt(c.file, i, "it is missing")
			}
			return err
		}
		if l.Term < term {
			return c.corrupt(c.file, i, fmt.Sprintf("its term %d is below that of the entry before, %d", l.Term, term))
		}
		term = l.Term
		if c.reads.Entry == nil || i <= c.st.snapshot || l.Type != raft.LogCommand {
			continue
		}
		if err := c.reads.Entry(l.Data); err != nil {
			return fmt.Errorf("%s: log entry %d: %w: %w", c.dir, i, err, ErrNewer)
		}
	}
	var votedTerm uint64
	for key, v := range map[string]*uint64{keyTerm: &c.st.term, keyVoteTerm: &votedTerm} {
		if *v, err = s.GetUint64([]byte(key)); err != nil && err.Error() != "not found" {
			return err
		}
	}
	if _, err := s.Get([]byte(keyVoteFor)); err != nil && err.Error() != "not found" {
		return err
	}
	if c.st.votes == 1 && votedTerm == 0 || c.st.term < term || c.st.term < votedTerm {
		return c.corrupt(c.file, 0, fmt.Sprintf("the stored term %d does not go with entries of term %d and a vote in term %d", c.st.term, term, votedTerm))
	}
	return nil
}
