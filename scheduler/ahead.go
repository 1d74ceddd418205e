package scheduler

import (
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// ahead is what is kept for a job that needs several nodes until its turn comes.
type ahead struct {
	it    *item
	parts []rules.Part
	was   []int64 // of each card until when it was free before
	bound int64
}

// keepAhead keeps nodes for the first of those that need several and have waited for
// ReserveAge, from those that come before them in the pass: nodes seldom come free
// together where shorter jobs take each by itself, whenever it is free. Who comes before
// such a job may still lie there if that delays it by no more than it would run itself,
// less what it has waited; so it waits for at most about that long beside what it would
// wait if nobody passed it. Deadlines, the old and those of a higher class are not held
// up by it. The order is what is left of the pass's; nothing is done but at the first job
// of a class that is not old.
func (kp *keeper) keepAhead(order []rank, items []item) {
	class := order[0].class
	if items[order[0].item].old || kp.looked && class == kp.lookedAt {
		return
	}
	kp.looked, kp.lookedAt = true, class
	for _, r := range order {
		it := &items[r.item]
		if r.class != class || len(kp.aheads) > len(kp.f.Cards)/cardsAKeep {
			return
		}
		waited := kp.now - int64(it.job.Eligible)
		if it.gone || it.old || it.gpus == 0 || !it.spans() || waited < kp.pol.ReserveAge.Microseconds() {
			continue
		}
		parts, shadow, class := kp.clearest(it)
		if class < 0 || kp.keepsAny(parts) || kp.limits != nil && kp.overLimit(it, class) {
			continue
		}
		a := ahead{it: it, parts: parts, bound: shadow + max(0, it.needs[class].Dur-waited)}
		for i := range parts {
			for _, c := range parts[i].Cards {
				a.was = append(a.was, kp.f.Cards[c].Until)
				kp.f.Cards[c].Until = min(kp.f.Cards[c].Until, a.bound)
			}
			kp.f.Hosts[parts[i].Host].KeptFor = it.job.ID
			kp.f.Keeps(parts[i].Host, parts[i].Cards)
		}
		kp.aheads = append(kp.aheads, a)
	}
}

// keepsAny reports whether something is kept on one of these nodes already.
func (kp *keeper) keepsAny(parts []rules.Part) bool {
	for i := range parts {
		if kp.f.Hosts[parts[i].Host].KeptFor != 0 {
			return true
		}
	}
	return false
}

// turnOf ends what was kept for a job until its turn.
func (kp *keeper) turnOf(it *item) {
	for k := range kp.aheads {
		a := &kp.aheads[k]
		if a.it != it {
			continue
		}
		n := 0
		for i := range a.parts {
			for _, c := range a.parts[i].Cards {
				if kp.f.Cards[c].Until == a.bound { // nobody wanted it kept for longer
					kp.f.Cards[c].Until = a.was[n]
				}
				n++
			}
			if h := &kp.f.Hosts[a.parts[i].Host]; h.KeptFor == it.job.ID {
				h.KeptFor = 0
			}
			kp.f.Keeps(a.parts[i].Host, a.parts[i].Cards)
		}
	}
}
