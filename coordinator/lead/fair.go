package lead

import (
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/scheduler"
)

// fairEvery is how long an order of fair shares is used: use changes slowly, and
// passes come often.
const fairEvery = time.Second

// fairShares keeps the order of fair shares. It is safe for several goroutines.
type fairShares struct {
	mu   sync.Mutex
	rev  uint64
	tree *scheduler.FairTree
	at   time.Time
	last *cluster.Fair
}

// order returns the order as of now, at most fairEvery old; nil where there are
// no accounts.
func (f *fairShares) order(st *fsm.FSM, now time.Time) *cluster.Fair {
	if has, _ := st.HasAccounts(); !has {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rev := st.StandingRevision()
	if f.tree != nil && rev == f.rev && now.Sub(f.at) >= 0 && now.Sub(f.at) < fairEvery {
		return f.last
	}
	if f.tree == nil || rev != f.rev {
		d := st.Standing(cluster.TimeOf(now))
		f.tree, f.rev = scheduler.NewFairTree(d.Accounts, d.Members), rev
	}
	f.tree.Reset()
	st.EachUse(cluster.TimeOf(now), f.tree.Add)
	f.last, f.at = f.tree.Order(), now
	return f.last
}

// stand adds the order of fair shares to a snapshot, where it counts.
func (p *planner) stand(snap *cluster.Snapshot, sched *Scheduling) {
	if !sched.Fairly() {
		return
	}
	if fair := p.fair.order(p.fsm, p.clock()); fair != nil {
		s := cluster.Standing{Fair: fair}
		if snap.Standing != nil {
			s.QOS = snap.Standing.QOS
		}
		snap.Standing = &s
	}
}
