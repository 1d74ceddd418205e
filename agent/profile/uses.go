package profile

import (
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// Uses returns what the attempts that run have used of their cards since they
// began, by attempt. Sums outlive the agent as all that is measured does.
func (r *Recorder) Uses() []*nodev1.AttemptUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*nodev1.AttemptUse
	for _, id := range r.ids() {
		t := r.tracks[id]
		if !t.live || len(t.Cards) == 0 {
			continue
		}
		u := &nodev1.AttemptUse{Job: uint64(id.Job), Attempt: id.No}
		for _, c := range t.Cards {
			u.BusyMs, u.KnownMs, u.PeakMib = u.BusyMs+c.Util.Sum, u.KnownMs+c.Util.Ms, max(u.PeakMib, c.PeakMiB)
		}
		out = append(out, u)
	}
	return out
}
