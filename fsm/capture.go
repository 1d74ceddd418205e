package fsm

import (
	"fmt"
	"io"

	"github.com/berth-scheduler/berth/cluster"
)

// Capture is the state as it was at one entry, to be kept outside of Raft.
type Capture struct {
	Index, Term uint64
	// EntryVersion is the highest version of an entry up to here.
	EntryVersion uint32
	// Hash is the state's, NextJob the least id that the next job may have.
	Hash    []byte
	NextJob cluster.JobID

	snap *snapshot
}

// Capture returns the state as it is now. Apply goes on while it is written.
func (f *FSM) Capture() *Capture {
	s := f.capture()
	return &Capture{
		Index: s.view.at.Index, Term: s.view.term, EntryVersion: max(1, s.view.at.Format), Hash: s.hash, NextJob: s.view.roll.NextID, snap: s,
	}
}

// Write writes the state as a snapshot does, for Load.
func (c *Capture) Write(w io.Writer) error {
	if err := c.snap.write(w); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// Revival is how a cluster begins again from an older state.
type Revival struct {
	// SkipJobs is how many ids of jobs are left out: those that the cluster gave
	// to jobs after the state was captured.
	SkipJobs uint64
}

// Load reads what a Capture wrote and returns it: as it is, or, when revival is
// given, as a cluster may begin again with it, in which join tokens, that may have
// been spent since, are void. What is not whole is refused.
func Load(r io.Reader, o Options, revival *Revival) (*Capture, error) {
	st, err := readSnapshot(r, o.Bulk)
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	if revival != nil {
		skip := revival.SkipJobs
		if next := uint64(st.roll.NextID) + skip; next < skip || next > 1<<53 {
			return nil, fmt.Errorf("%d ids of jobs cannot be left out after %d: ids end at 2^53", skip, st.roll.NextID)
		}
		st.roll.NextID += cluster.JobID(skip)
		st.keyring.VoidTokens()
	}
	f := New(o)
	f.st = st
	return f.Capture(), nil
}
