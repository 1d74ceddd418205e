package fsm

import (
	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm/table"
)

// digests are those of what the state holds itself.
type digests struct {
	config       *table.Digests[table.One]
	jobs, arrays *table.Digests[cluster.JobID]
}

// digest makes the digests of what the state holds itself.
func (s *State) digest(h *table.Hash) {
	number := func(id cluster.JobID) []byte { return h.Number(uint64(id)) }
	s.digests = digests{
		config: table.NewOne(h, table.Config, func() proto.Message {
			if s.config == nil {
				return nil
			}
			return s.config
		}),
		jobs: table.NewDigests(h, table.Job, number, func(id cluster.JobID) proto.Message {
			if j := s.jobs.Get(id); j != nil {
				return s.jobRecord(j)
			}
			return nil
		}),
		arrays: table.NewDigests(h, table.Array, number, func(id cluster.JobID) proto.Message {
			if a := s.arrays[id]; a != nil {
				return s.arrayRecord(a)
			}
			return nil
		}),
	}
}

// hashNow returns the canonical hash of the state.
func (s *State) hashNow() []byte { return s.hash.Now(s.metaRecord()) }
