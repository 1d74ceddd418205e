package fsm

import (
	"github.com/berth-scheduler/berth/cluster"
)

// sellable is the memory of a card that is given away, 0 for one that is gone.
func (s *State) sellable(id cluster.GPUID) int64 {
	u, _ := s.ledger.GPU(id)
	return u.SellableMiB
}
