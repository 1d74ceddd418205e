// Package power applies to whole GPUs the power limit and clock requested by the attempt on
// them, and restores the previous settings when it is over. Settings outlive the agent, so what
// to restore is on disk before anything is set.
package power

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/cluster"
)

// againEvery is how often a failed restore is retried.
const againEvery = 30 * time.Second

// Keeper tracks which GPUs have changed settings, for which attempt, and the previous ones.
//
//	(original) ─▶ saved on disk ─▶ set ─▶ restored ─▶ (original)
//
// It is safe for concurrent use; calls wait for each other, and for the driver.
type Keeper struct {
	gpus gpu.Tuner // nil where GPUs cannot be set
	file file
	log  *slog.Logger
	step func(name string) // tests end the process there

	mu    sync.Mutex
	cards map[string]*held // by UUID
}

// held is one GPU that is set, or is about to be.
type held struct {
	// Attempt is the attempt it is set for, "" once that is over and the GPU still has to be
	// restored.
	Attempt string `json:"attempt,omitempty"`
	// WasMilliW is the previous power limit, 0 if it is not changed; Clock says that the GPU's
	// clock is locked.
	WasMilliW int64 `json:"was_milliwatts,omitempty"`
	Clock     bool  `json:"clock,omitempty"`
	// Done is what was set, once it was.
	Done *cluster.CardPower `json:"done,omitempty"`
	// setMilliW and setMHz are what to set, 0 for nothing.
	setMilliW, setMHz int64
}

// Open reads what previous agents set; Adopt says which of that is still wanted. gpus is nil
// where GPUs cannot be set.
func Open(dir string, gpus gpu.Tuner, log *slog.Logger) (*Keeper, error) {
	k := &Keeper{gpus: gpus, file: fileIn(dir), log: log.With("component", "power"), step: func(string) {}, cards: map[string]*held{}}
	return k, k.file.load(&k.cards)
}

// Failpoint has step called at each step. It must be called before anything else.
func (k *Keeper) Failpoint(step func(name string)) { k.step = step }

// Adopt says which attempts continue. The GPUs of others are to be restored.
func (k *Keeper) Adopt(goesOn func(attempt string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.cards {
		if !goesOn(h.Attempt) {
			h.Attempt = ""
		}
	}
}

// Run restores, until ctx ends, GPUs for which that failed or that previous agents left.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(againEvery)
	defer tick.Stop()
	for {
		k.Leave(ctx, "")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Set applies ask to GPUs that an attempt has alone, and returns what was and was not set for
// each, in their order: a failure does not keep the attempt from starting. Repeating it, after
// a restart, changes nothing. An attempt that asks for nothing gets GPUs with their original
// settings, as far as possible.
func (k *Keeper) Set(ctx context.Context, attempt string, uuids []string, ask cluster.GPUPower) []cluster.CardPower {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bringBack(ctx, func(uuid string, h *held) bool { return h.Attempt != attempt && slices.Contains(uuids, uuid) })
	if ask == (cluster.GPUPower{}) || len(uuids) == 0 {
		return nil
	}
	before := maps.Clone(k.cards)
	out := make([]cluster.CardPower, 0, len(uuids))
	for _, uuid := range uuids {
		out = append(out, k.plan(ctx, attempt, uuid, ask))
	}
	k.step("before power kept")
	if err := k.file.save(k.cards); err != nil {
		k.log.ErrorContext(ctx, "cannot keep what GPUs are to be set to; they are left alone", "attempt", attempt, "err", err)
		k.cards = before
		for i := range out {
			out[i] = cluster.CardPower{GPU: out[i].GPU, Why: short("nothing is set, since it could not be kept on disk: " + err.Error())}
		}
		return out
	}
	k.step("after power kept")
	for i := range out {
		k.act(ctx, &out[i])
	}
	k.step("after power set")
	if err := k.file.save(k.cards); err != nil {
		k.log.WarnContext(ctx, "cannot keep what GPUs were set to", "attempt", attempt, "err", err)
	}
	return out
}

// plan decides the settings of one GPU, and records the previous ones.
func (k *Keeper) plan(ctx context.Context, attempt, uuid string, ask cluster.GPUPower) cluster.CardPower {
	p := cluster.CardPower{GPU: cluster.GPUID(uuid)}
	h := &held{Attempt: attempt}
	if was := k.cards[uuid]; was != nil { // it is set already, or could not be restored
		h.WasMilliW, h.Clock = was.WasMilliW, was.Clock
	}
	k.cards[uuid] = h
	var t gpu.Tuning
	err := ask.Check()
	switch {
	case err != nil:
	case strings.HasPrefix(uuid, "MIG-"):
		err = errors.New("a MIG instance has no power limit or clock of its own")
	case k.gpus == nil:
		err = errors.New("power and clocks of this node's GPUs cannot be set")
	default:
		t, err = k.gpus.Tuning(ctx, uuid)
	}
	if err != nil {
		p.Why = short(err.Error())
		return p
	}
	if h.WasMilliW > 0 {
		t.LimitMilliW = h.WasMilliW
	}
	var words []string
	if ask.Cap != "" {
		milliW, why := limitOf(ask.Cap, t)
		if h.setMilliW = milliW; milliW > 0 {
			h.WasMilliW = t.LimitMilliW
		}
		words = append(words, why)
	}
	if ask.Freq != "" {
		mhz, why := clockOf(ask.Freq, t)
		h.setMHz, h.Clock = mhz, h.Clock || mhz > 0
		words = append(words, why)
	}
	p.Why = short(sentence(words))
	return p
}

// limitOf returns the requested power limit of a GPU, in milliwatts, no higher than the one in
// force: a job may ask for less, never for more than its site allows. It is 0 where none is
// possible. why explains a difference from the request.
func limitOf(c cluster.PowerCap, t gpu.Tuning) (milliW int64, why string) {
	milliW = max(1, c.Watts(t.DefaultMilliW/1000)) * 1000
	most := t.LimitMilliW
	switch {
	case t.LimitMilliW == 0 || t.DefaultMilliW == 0 && strings.HasSuffix(string(c), "%"):
		return 0, "no cap: the driver tells no power limit of the card"
	case milliW > most:
		return most, fmt.Sprintf("%d W is above the GPU's limit of %d W", milliW/1000, most/1000)
	case milliW < t.MinMilliW:
		return min(t.MinMilliW, most), fmt.Sprintf("%d W is below the GPU's minimum of %d W", milliW/1000, t.MinMilliW/1000)
	}
	return milliW, ""
}

// clockOf returns the requested clock of a GPU, in MHz, likewise.
func clockOf(f cluster.GPUFreq, t gpu.Tuning) (mhz int64, why string) {
	mhz = f.Choose(t.ClocksMHz)
	switch asked := string(f); {
	case mhz == 0:
		return 0, "no clock: the driver tells none of the card"
	case asked[0] >= '0' && asked[0] <= '9' && asked != fmt.Sprint(mhz):
		return mhz, fmt.Sprintf("%d MHz is the nearest clock to %s", mhz, asked)
	}
	return mhz, ""
}

// act applies what was planned to a GPU and records the result.
func (k *Keeper) act(ctx context.Context, p *cluster.CardPower) {
	h, uuid, words := k.cards[string(p.GPU)], string(p.GPU), []string{p.Why}
	if h.setMilliW > 0 {
		if err := k.gpus.SetPowerLimit(ctx, uuid, h.setMilliW); err != nil {
			words = append(words, "no cap: "+err.Error())
		} else {
			p.CapW = h.setMilliW / 1000
		}
	}
	if h.setMHz > 0 {
		if err := k.gpus.LockClock(ctx, uuid, h.setMHz); err != nil {
			words = append(words, "no clock: "+err.Error())
		} else {
			p.ClockMHz = h.setMHz
		}
	}
	p.Why = short(sentence(words))
	done := *p
	h.Done = &done
	k.log.InfoContext(ctx, "power and clock of a GPU", "attempt", h.Attempt, "gpu", uuid, "cap_w", p.CapW, "clock_mhz", p.ClockMHz, "err", p.Why)
}

// Of returns what was set for an attempt, by UUID; nil for nothing.
func (k *Keeper) Of(attempt string) (out []cluster.CardPower) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.cards {
		if h.Attempt == attempt && h.Done != nil {
			out = append(out, *h.Done)
		}
	}
	slices.SortFunc(out, func(a, b cluster.CardPower) int { return strings.Compare(string(a.GPU), string(b.GPU)) })
	return out
}

// Leave restores the GPUs of an attempt that is over, and reports whether there were any.
// Failures are retried by Run, and by the next attempt that gets the GPU.
func (k *Keeper) Leave(ctx context.Context, attempt string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bringBack(ctx, func(_ string, h *held) bool { return h.Attempt == attempt })
}

// bringBack restores the selected GPUs, and reports whether there were any.
func (k *Keeper) bringBack(ctx context.Context, which func(uuid string, h *held) bool) bool {
	some := false
	for uuid, h := range k.cards {
		if !which(uuid, h) {
			continue
		}
		if !some {
			k.step("before power back")
		}
		some, h.Attempt, h.Done = true, "", nil
		var errs []error
		if k.gpus == nil && (h.WasMilliW > 0 || h.Clock) {
			errs = append(errs, errors.New("the node has no driver for its GPUs now"))
		}
		if h.WasMilliW > 0 && k.gpus != nil {
			errs = append(errs, k.gpus.SetPowerLimit(ctx, uuid, h.WasMilliW))
		}
		if h.Clock && k.gpus != nil {
			errs = append(errs, k.gpus.LockClock(ctx, uuid, 0))
		}
		if err := errors.Join(errs...); err != nil {
			k.log.WarnContext(ctx, "a GPU's power limit or clock cannot be brought back; it will be tried again", "gpu", uuid, "was_milliwatts", h.WasMilliW, "err", err)
			continue
		}
		delete(k.cards, uuid)
	}
	if some {
		k.step("after power back")
		if err := k.file.save(k.cards); err != nil {
			k.log.WarnContext(ctx, "cannot keep that GPUs are as they were", "err", err)
		}
	}
	return some
}

func sentence(words []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(words), func(s string) bool { return s == "" }), "; ")
}

// short makes text fit for a report.
func short(s string) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\n", "; "), "?")
	if len(s) > cluster.MaxPowerWhy {
		s = strings.ToValidUTF8(s[:cluster.MaxPowerWhy-len("…")], "") + "…"
	}
	return s
}
