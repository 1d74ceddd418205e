package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// saveEvery is the most that a killed agent forgets.
const saveEvery = 10 * time.Second

// keepFor is how long the file keeps an attempt that is not begun again.
const keepFor = 7 * 24 * time.Hour

// saved is the file. It is not synced: jobs do not outlive the machine.
type saved struct {
	Tracks []*track             `json:"tracks"`
	Cards  map[string]cardState `json:"cards"`
}

// save writes a new file. A failure to write it affects no job.
func (r *Recorder) save() {
	r.mu.Lock()
	s := saved{Cards: r.cards}
	for _, id := range r.ids() {
		s.Tracks = append(s.Tracks, r.tracks[id])
	}
	data, err := json.Marshal(s)
	idle := len(s.Tracks) == 0
	r.mu.Unlock()
	if idle {
		err = errors.Join(err, remove(r.path))
	} else {
		tmp := r.path + ".new"
		if werr := os.WriteFile(tmp, data, 0o600); werr != nil {
			err = errors.Join(err, werr)
		} else {
			err = errors.Join(err, os.Rename(tmp, r.path))
		}
	}
	if err != nil {
		r.log.Warn("cannot save what was measured of the attempts", "err", err)
	}
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// load resumes from the file. A damaged one counts as missing.
func (r *Recorder) load() {
	data, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var s saved
	if err == nil {
		err = s.read(data)
	}
	if err != nil {
		r.log.Warn("what was measured of the attempts before cannot be read", "err", err)
		return
	}
	for _, t := range s.Tracks {
		if time.Since(t.Looked) > keepFor {
			continue
		}
		t.resumed = true
		r.tracks[t.ID] = t
	}
	if s.Cards != nil {
		r.cards = s.Cards
	}
}

func (s *saved) read(data []byte) error {
	if err := json.Unmarshal(data, s); err != nil {
		return err
	}
	for i, t := range s.Tracks {
		if t == nil || t.ID.Job == 0 {
			return fmt.Errorf("attempt %d of the file is none", i+1)
		}
		for _, c := range t.Cards {
			if c == nil {
				return fmt.Errorf("attempt %s: a card is none", t.ID)
			}
		}
		for _, b := range t.Beside {
			if b == nil {
				return fmt.Errorf("attempt %s: a neighbour is none", t.ID)
			}
		}
	}
	return nil
}
