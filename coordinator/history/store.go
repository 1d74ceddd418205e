// Package history keeps finished jobs outside of the replicated state: a local
// store of files that each coordinator fills from the state machine's feed of ended
// jobs. It is never a source of truth: what is missing or damaged is fetched again,
// from the state or from another coordinator.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
)

// Defaults of a Config.
const (
	DefaultKeep    = 90 * 24 * time.Hour
	DefaultMaxJobs = 1_000_000
	segmentJobs    = 8192
	// sealAfter bounds how long jobs stay in the head, so that files have a known
	// age.
	sealAfter = 24 * time.Hour
)

// Config says where a store is and what it keeps.
type Config struct {
	Dir string
	// Keep is for how long, MaxJobs how many; 0 means 90 days and 1,000,000. Some
	// more may be kept, since whole files are dropped.
	Keep    time.Duration
	MaxJobs int
	// SegmentJobs is how many jobs a file has; 0 means 8,192.
	SegmentJobs int
	// OnDamage is called when a file was found damaged and put aside, so that its
	// contents are fetched again at once; optional.
	OnDamage func()
	Log      *slog.Logger
}

// Span is a part of the log: after From and up to To.
type Span struct{ From, To uint64 }

// Stats describes the state of a store.
type Stats struct {
	Jobs     int
	Bytes    int64
	Segments int
	// UpTo is the index up to which everything is on the disk; Floor that below
	// which nothing is kept any more.
	UpTo, Floor uint64
	// Oldest is the end of the oldest job, 0 without any.
	Oldest cluster.Time
	Holes  []Span
	// Failures counts failed writes, and Err is the last of them until one
	// succeeds.
	Failures uint64
	Err      error
	// Damaged counts files that were found damaged and put aside.
	Damaged uint64
}

// Store is safe for concurrent use. Reading never waits for writing.
type Store struct {
	cfg Config

	write sync.Mutex // held while files change

	mu       sync.RWMutex // for what follows; never held for I/O
	segs     []*segment   // in order and apart
	head     *head
	floor    uint64
	err      error
	failures uint64
	bad      uint64
}

// Open reads the store. Damaged files are logged, put aside and leave a hole; only
// an unusable folder is an error.
func Open(cfg Config) (*Store, error) {
	cfg.Keep = cmp.Or(cfg.Keep, DefaultKeep)
	cfg.MaxJobs = cmp.Or(cfg.MaxJobs, DefaultMaxJobs)
	cfg.SegmentJobs = cmp.Or(cfg.SegmentJobs, segmentJobs)
	s := &Store{cfg: cfg}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("history in %s: %w", cfg.Dir, err)
	}
	return s, nil
}

// Close closes the files; what was appended is already on the disk.
func (s *Store) Close() error {
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head.close()
	return nil
}

func (s *Store) path(name string) string { return filepath.Join(s.cfg.Dir, name) }

// load reads the folder. The caller holds write.
func (s *Store) load() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	dir, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	floor, err := readFloor(s.path(floorName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.aside(s.path(floorName), err)
	}
	var segs []*segment
	var heads []string
	for _, d := range dir {
		name := d.Name()
		switch {
		case strings.HasSuffix(name, ".tmp"), strings.HasSuffix(name, ".bad"):
			_ = os.Remove(s.path(name))
		case strings.HasPrefix(name, "head-"):
			heads = append(heads, s.path(name))
		case strings.HasPrefix(name, "seg-"):
			g, err := openSegment(s.path(name))
			if err != nil {
				s.aside(s.path(name), err)
				continue
			}
			segs = append(segs, g)
		}
	}
	segs = s.apart(segs, floor)
	h, segs, err := s.loadHeads(heads, segs, floor)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head.close()
	s.segs, s.head, s.floor, s.err = segs, h, floor, nil
	return nil
}

// apart sorts segments, and drops those below the floor or inside of others.
func (s *Store) apart(segs []*segment, floor uint64) []*segment {
	slices.SortFunc(segs, func(a, b *segment) int {
		if a.from != b.from {
			return compare(a.from, b.from)
		}
		return compare(b.to, a.to) // the longer one first
	})
	var out []*segment
	end := floor
	for _, g := range segs {
		switch {
		case g.to <= end && g.from < end:
			_ = os.Remove(g.path) // dropped before, or a duplicate
		case g.from < end:
			s.aside(g.path, fmt.Errorf("overlaps what is known until %d", end))
		default:
			out, end = append(out, g), g.to
		}
	}
	return out
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// loadHeads opens the newest head; older ones, left by a crash, become segments if
// they have anything that no segment has.
func (s *Store) loadHeads(paths []string, segs []*segment, floor uint64) (*head, []*segment, error) {
	slices.Sort(paths)
	end := floor
	if n := len(segs); n > 0 {
		end = segs[n-1].to
	}
	var newest *head
	for i, p := range paths {
		h, cut, err := openHead(p)
		if err != nil {
			s.aside(p, err)
			continue
		}
		if cut > 0 {
			s.cfg.Log.Warn("history: cut off what was not written to the end", "file", filepath.Base(p), "bytes", cut, "index", h.upTo)
		}
		if h.upTo < end || h.from < end && h.upTo == end || i < len(paths)-1 && len(h.entries) == 0 {
			h.close()
			if err := os.Remove(p); err != nil {
				return nil, nil, err
			}
			continue
		}
		if i < len(paths)-1 || h.from < end {
			g, err := s.toSegment(h, max(end, h.from))
			h.close()
			if err != nil {
				return nil, nil, err
			}
			if err := os.Remove(p); err != nil {
				return nil, nil, err
			}
			segs, end = append(segs, g), g.to
			continue
		}
		newest = h
	}
	if newest == nil {
		var err error
		if newest, err = createHead(s.path(headName(end)), end); err != nil {
			return nil, nil, err
		}
	}
	return newest, segs, nil
}

// toSegment writes what a head has after an index as a segment.
func (s *Store) toSegment(h *head, from uint64) (*segment, error) {
	es := h.entries
	for len(es) > 0 && es[0].row.Index <= from {
		es = es[1:]
	}
	return s.writeSegment(from, h.upTo, es)
}

func (s *Store) writeSegment(from, to uint64, es []entry) (*segment, error) {
	data, g, err := encodeSegment(from, to, es)
	if err != nil {
		return nil, err
	}
	g.path = s.path(segmentName(from, to))
	return g, writeFile(g.path, data)
}

// aside moves a damaged file out of the way and logs it.
func (s *Store) aside(path string, err error) {
	s.mu.Lock()
	s.bad++
	s.mu.Unlock()
	s.cfg.Log.Error("history: a file is damaged and put aside; what it had is fetched again from the state or another coordinator",
		"file", filepath.Base(path), "err", err)
	if err := os.Rename(path, path+".bad"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Error("history: cannot put a damaged file aside", "file", filepath.Base(path), "err", err)
	}
	if s.cfg.OnDamage != nil {
		s.cfg.OnDamage()
	}
}

// Append makes jobs durable that ended after UpTo and up to an index, in order.
// Their records are made by Record. After an error UpTo reports whether they are
// kept; if not the call may be repeated.
func (s *Store) Append(upTo uint64, jobs []*cluster.Job) error {
	s.write.Lock()
	defer s.write.Unlock()
	return s.noted(s.append(upTo, jobs))
}

// ready reopens the files after a write failed.
func (s *Store) ready() error {
	s.mu.RLock()
	broken := s.err != nil
	s.mu.RUnlock()
	if !broken {
		return nil
	}
	return s.load()
}

// noted counts failures.
func (s *Store) noted(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failures++
	}
	s.err = err
	return err
}

func (s *Store) append(upTo uint64, jobs []*cluster.Job) error {
	if err := s.ready(); err != nil {
		return err
	}
	h := s.head
	f := frame{upTo: upTo}
	var es []entry
	for _, j := range jobs {
		if j.Revision <= h.upTo {
			continue
		}
		e, err := entryOf(j)
		if err != nil {
			return err
		}
		f.records, es = append(f.records, e.record), append(es, e)
	}
	var grew int64
	if len(es) > 0 {
		var err error
		if grew, err = h.write(&f); err != nil {
			return err
		}
	}
	s.mu.Lock()
	h.entries, h.upTo, h.size = append(h.entries, es...), max(h.upTo, upTo), h.size+grew
	s.mu.Unlock()
	if len(h.entries) >= s.cfg.SegmentJobs {
		return s.seal(h.upTo)
	}
	return nil
}

// seal turns the head into a segment, if it has anything, and begins a new one
// after next. The caller holds write.
func (s *Store) seal(next uint64) error {
	h, segs := s.head, s.segs
	if len(h.entries) > 0 || h.upTo > h.from {
		g, err := s.toSegment(h, h.from)
		if err != nil {
			return err
		}
		segs = append(slices.Clone(segs), g)
	}
	fresh, err := createHead(s.path(headName(next)), next)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.segs, s.head = segs, fresh
	s.mu.Unlock()
	h.close()
	if h.path == fresh.path {
		return nil
	}
	if err := os.Remove(h.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Skip continues after a later index: what ended up to there is unknown here, and
// becomes a hole.
func (s *Store) Skip(to uint64) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.ready(); err != nil {
		return s.noted(err)
	}
	if to <= s.head.upTo {
		return nil
	}
	return s.noted(s.seal(to))
}

// Fill puts records into a hole, or the beginning of one, from another source. It
// checks that they belong there.
func (s *Store) Fill(in Span, records [][]byte) error {
	es, err := entriesOf(records, in.From, in.To)
	if err != nil {
		return err
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.ready(); err != nil {
		return s.noted(err)
	}
	if !slices.ContainsFunc(s.Holes(), func(h Span) bool { return h.From <= in.From && in.To <= h.To }) || in.From >= in.To {
		return fmt.Errorf("history: %d to %d is not missing", in.From, in.To)
	}
	g, err := s.writeSegment(in.From, in.To, es)
	if err != nil {
		return s.noted(err)
	}
	s.mu.Lock()
	at, _ := slices.BinarySearchFunc(s.segs, g.from, func(a *segment, from uint64) int { return compare(a.from, from) })
	s.segs = slices.Insert(slices.Clone(s.segs), at, g)
	s.mu.Unlock()
	return s.noted(nil)
}

// UpTo returns the index up to which everything is on the disk, or is a hole.
func (s *Store) UpTo() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.head.upTo
}

// Holes returns the parts of the log whose ended jobs are missing, in order.
func (s *Store) Holes() []Span {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.holes()
}

func (s *Store) holes() []Span { return holesOf(s.floor, s.segs, s.head.from) }

// holesOf returns what is between segments, which begin after a floor, and up to an
// index.
func holesOf(floor uint64, segs []*segment, until uint64) []Span {
	var out []Span
	end := floor
	for _, g := range segs {
		if g.from > end {
			out = append(out, Span{end, g.from})
		}
		end = max(end, g.to)
	}
	if until > end {
		out = append(out, Span{end, until})
	}
	return out
}

// Stats returns the state of the store.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := Stats{
		Jobs: len(s.head.entries), Bytes: s.head.size, Segments: len(s.segs), UpTo: s.head.upTo, Floor: s.floor, Holes: s.holes(),
		Failures: s.failures, Err: s.err, Damaged: s.bad,
	}
	for _, g := range s.segs {
		st.Jobs += g.n
		st.Bytes += g.size
		if g.n > 0 && (st.Oldest == 0 || g.firstEnd < st.Oldest) {
			st.Oldest = g.firstEnd
		}
	}
	if len(s.head.entries) > 0 && st.Oldest == 0 {
		st.Oldest = s.head.entries[0].row.Ended
	}
	return st
}
