package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Every simulated GPU has the clocks of an A100 (nvidia-smi -q -d SUPPORTED_CLOCKS), and as on
// an A100 its power limit may be set from a quarter of the default to the default.
const (
	slowestMHz, fastestMHz, stepMHz = 210, 1410, 15
	leastLimit                      = 4
)

// setting is what a GPU was set to, 0 for nothing. It outlives the agent, as on a real GPU.
type setting struct {
	MilliW int64 `json:"milliwatts,omitempty"`
	MHz    int64 `json:"mhz,omitempty"`
	// Cut is what a GPU in MIG mode was cut into, nil if it never was.
	Cut []gpu.Piece `json:"cut,omitempty"`
}

// limitW returns the power limit in force, which is also the draw at full load.
func (c *card) limitW() int64 {
	if c.set.MilliW == 0 {
		return c.model.limitW
	}
	return c.set.MilliW / 1000
}

// energyMJ returns the energy used since the bank was opened.
func (c *card) energyMJ(now time.Duration) int64 {
	busy := c.busy.total.Round(time.Millisecond).Milliseconds()
	return c.model.idleW*now.Round(time.Millisecond).Milliseconds() + c.counted + (c.limitW()-c.model.idleW)*(busy-c.upTo)
}

// tune changes the settings of a GPU; the energy up to now was used under the previous limit.
func (c *card) tune(s setting) {
	busy := c.busy.total.Round(time.Millisecond).Milliseconds()
	c.counted, c.upTo = c.counted+(c.limitW()-c.model.idleW)*(busy-c.upTo), busy
	c.set = s
	c.info.PowerLimitW = int(c.limitW())
}

func (p *Provider) settings() string { return p.cfg.Socket + ".power" }

// remember restores the GPU settings from before the agent started.
func (p *Provider) remember() {
	var was map[string]setting
	data, err := os.ReadFile(p.settings())
	if err == nil {
		err = json.Unmarshal(data, &was)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.Warn("what simulated GPUs were set to cannot be read", "component", "gpu-sim", "err", err)
	}
	for _, c := range slices.Clone(p.bank.cards) {
		c.tune(was[c.info.UUID])
		if c.info.MIG == gpu.ModeOn {
			p.bank.cutAnew(c, was[c.info.UUID].Cut)
		}
	}
}

// Tuning implements gpu.Tuner.
func (p *Provider) Tuning(_ context.Context, uuid string) (gpu.Tuning, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.bank.card(uuid)
	if c == nil {
		return gpu.Tuning{}, fmt.Errorf("%w: %s", gpu.ErrUnknownCard, uuid)
	}
	t := gpu.Tuning{LimitMilliW: c.set.MilliW, DefaultMilliW: c.model.limitW * 1000, MinMilliW: c.model.limitW * 1000 / leastLimit, MaxMilliW: c.model.limitW * 1000}
	t.LimitMilliW = cmp.Or(t.LimitMilliW, t.DefaultMilliW)
	for mhz := int64(fastestMHz); mhz >= slowestMHz; mhz -= stepMHz {
		t.ClocksMHz = append(t.ClocksMHz, mhz)
	}
	return t, nil
}

// SetPowerLimit implements gpu.Tuner.
func (p *Provider) SetPowerLimit(ctx context.Context, uuid string, milliW int64) error {
	t, err := p.Tuning(ctx, uuid)
	if err == nil && (milliW < t.MinMilliW || milliW > t.MaxMilliW) {
		err = fmt.Errorf("a power limit of %d mW is outside %d to %d", milliW, t.MinMilliW, t.MaxMilliW)
	}
	if milliW == t.DefaultMilliW {
		milliW = 0
	}
	return p.tune(uuid, err, func(s *setting) { s.MilliW = milliW })
}

// LockClock implements gpu.Tuner.
func (p *Provider) LockClock(ctx context.Context, uuid string, mhz int64) error {
	t, err := p.Tuning(ctx, uuid)
	if err == nil && mhz != 0 && !slices.Contains(t.ClocksMHz, mhz) {
		err = fmt.Errorf("there is no clock of %d MHz", mhz)
	}
	return p.tune(uuid, err, func(s *setting) { s.MHz = mhz })
}

// tune changes the settings of a GPU, unless wrong is set.
func (p *Provider) tune(uuid string, wrong error, change func(*setting)) error {
	if wrong != nil {
		return wrong
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	return p.keep(uuid, change)
}

// keep changes the settings of a GPU, on disk first. The caller holds p.mu.
func (p *Provider) keep(uuid string, change func(*setting)) error {
	all := map[string]setting{}
	for _, c := range p.bank.cards {
		s := c.set
		if c.info.UUID == uuid {
			change(&s)
		}
		if s.MilliW != 0 || s.MHz != 0 || s.Cut != nil {
			all[c.info.UUID] = s
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(p.settings()+".new", data, 0o600), os.Rename(p.settings()+".new", p.settings())); err != nil {
		return fmt.Errorf("keep the setting: %w", err)
	}
	p.bank.card(uuid).tune(all[uuid])
	p.bank.reckon() // its jobs run at another speed from here on
	p.nudge()
	return nil
}
