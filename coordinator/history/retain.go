package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
)

const (
	floorName  = "floor"
	floorBytes = 8 + 4
)

// readFloor returns the index below which nothing is kept, 0 without a file.
func readFloor(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if len(b) != floorBytes || binary.LittleEndian.Uint32(b[8:]) != checksum(b[:8]) {
		return 0, errors.New("wrong checksum")
	}
	return binary.LittleEndian.Uint64(b), nil
}

// Raise gives up everything that ended up to an index: it is no longer kept, or no
// coordinator has it.
func (s *Store) Raise(to uint64) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.ready(); err != nil {
		return s.noted(err)
	}
	return s.noted(s.raise(to))
}

func (s *Store) raise(to uint64) error {
	if to <= s.floor {
		return nil
	}
	b := binary.LittleEndian.AppendUint64(nil, to)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	if err := writeFile(s.path(floorName), b); err != nil {
		return err
	}
	s.mu.Lock()
	n := 0
	for n < len(s.segs) && s.segs[n].to <= to {
		n++
	}
	gone := s.segs[:n]
	s.segs, s.floor = slices.Clone(s.segs[n:]), to
	s.mu.Unlock()
	var errs error
	for _, g := range gone { // a reader has it open
		errs = errors.Join(errs, os.Remove(g.path))
	}
	return errs
}

// Retain drops the oldest files while there are more jobs than are kept, and those
// whose newest job is older than jobs are kept. now is the log's clock, so that
// coordinators agree.
func (s *Store) Retain(now cluster.Time) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.ready(); err != nil {
		return s.noted(err)
	}
	if es := s.head.entries; len(es) > 0 && now.Sub(es[0].row.Ended) > min(sealAfter, s.cfg.Keep) {
		if err := s.seal(s.head.upTo); err != nil {
			return s.noted(err)
		}
	}
	jobs := len(s.head.entries)
	for _, g := range s.segs {
		jobs += g.n
	}
	to := s.floor
	for _, g := range s.segs {
		if jobs-g.n < s.cfg.MaxJobs && (g.n == 0 || now.Sub(g.endMax) <= s.cfg.Keep) {
			break
		}
		jobs -= g.n
		to = g.to
	}
	if to > s.floor {
		s.cfg.Log.Debug("history: the oldest jobs are kept no more", "index", to)
	}
	return s.noted(s.raise(to))
}

// Scrub reads one whole file, the one after the last it read, and puts it aside if
// it is damaged. The head comes last; it is in memory too, so damage to it costs
// nothing.
func (s *Store) Scrub(after uint64) (next uint64) {
	s.mu.RLock()
	segs := s.segs
	s.mu.RUnlock()
	i := slices.IndexFunc(segs, func(g *segment) bool { return g.from >= after })
	if i < 0 {
		s.scrubHead()
		return 0
	}
	if err := segs[i].check(); err != nil {
		_ = s.found(segs[i], err)
	}
	return segs[i].to
}

// scrubHead writes the head in memory to another file if its own differs.
func (s *Store) scrubHead() {
	s.write.Lock()
	defer s.write.Unlock()
	if s.ready() != nil {
		return
	}
	err := s.head.check()
	if err == nil {
		return
	}
	s.mu.Lock()
	s.bad++
	s.mu.Unlock()
	s.cfg.Log.Error("history: the newest file is damaged; what it had is written anew", "file", filepath.Base(s.head.path), "err", err)
	_ = s.noted(s.seal(s.head.upTo))
}

// check reads everything in a segment.
func (g *segment) check() error {
	o, err := g.open()
	if err != nil {
		return err
	}
	defer o.close()
	if err := o.load(nil); err != nil {
		return err
	}
	if _, err := o.read(o.part[partIDs], nil); err != nil {
		return err
	}
	for i := range g.n {
		if i%recordsPerPack == 0 || i == g.n-1 {
			if _, err := o.record(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Damage means that a file was found damaged and put aside: its contents are
// missing until it is filled again.
type Damage struct {
	Span Span
	err  error
}

// Error implements error.
func (d *Damage) Error() string {
	return fmt.Sprintf("history: what ended after index %d and until %d cannot be read: %v", d.Span.From, d.Span.To, d.err)
}

// Unwrap returns what was wrong with the file.
func (d *Damage) Unwrap() error { return d.err }

// found puts aside a segment that could not be read. It returns a *Damage if the
// segment's contents are now missing, nil if they are no longer kept, and err if
// the fault is not in the file.
func (s *Store) found(g *segment, err error) error {
	if _, ok := errors.AsType[*damaged](err); !ok {
		if !errors.Is(err, os.ErrNotExist) {
			s.cfg.Log.Error("history: cannot read a file", "file", filepath.Base(g.path), "err", err)
			return err
		}
		err = fmt.Errorf("is gone: %w", err)
	}
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	i, kept := slices.Index(s.segs, g), g.to > s.floor
	if i >= 0 {
		s.segs = slices.Delete(slices.Clone(s.segs), i, i+1)
	}
	s.mu.Unlock()
	if i >= 0 { // otherwise it was found before
		s.aside(g.path, err)
	}
	if !kept {
		return nil
	}
	return &Damage{Span{g.from, g.to}, err}
}

func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
