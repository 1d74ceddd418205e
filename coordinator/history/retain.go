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

// Raise gives up all that ended until an index: it is kept no more, or nobody
// has it.
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
	for _, g := range gone { // whoever reads one has it open
		errs = errors.Join(errs, os.Remove(g.path))
	}
	return errs
}

// Retain drops the oldest files while there are more jobs than are kept, and
// those of which the newest job is older than it is kept. now is the log's
// clock, so that coordinators agree.
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

// Scrub reads one file whole, the one after what it read last, and puts it
// aside when it is damaged.
func (s *Store) Scrub(after uint64) (next uint64) {
	s.mu.RLock()
	segs := s.segs
	s.mu.RUnlock()
	i := slices.IndexFunc(segs, func(g *segment) bool { return g.from >= after })
	if i < 0 {
		return 0
	}
	if err := segs[i].check(); err != nil {
		s.found(segs[i], err)
	}
	return segs[i].to
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

// found puts a segment aside that turned out to be damaged. One that is gone
// was dropped meanwhile.
func (s *Store) found(g *segment, err error) {
	var d *damaged
	if !errors.As(err, &d) {
		if !errors.Is(err, os.ErrNotExist) {
			s.cfg.Log.Error("history: cannot read a file", "file", filepath.Base(g.path), "err", err)
			return
		}
		err = fmt.Errorf("is gone: %w", err)
	}
	s.write.Lock()
	defer s.write.Unlock()
	i := slices.Index(s.segs, g)
	if i < 0 {
		return
	}
	s.mu.Lock()
	s.segs = slices.Delete(slices.Clone(s.segs), i, i+1)
	s.mu.Unlock()
	s.aside(g.path, err)
}

func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
