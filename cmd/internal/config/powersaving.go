package config

import (
	"os"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/power"
)

// PowerSaving says which idle nodes are powered down, and how; see
// docs/power.md. It is off without programs.
type PowerSaving struct {
	// SuspendProgram and ResumeProgram are given a node's name, and power it down
	// and up. ProgramTimeout is after how long they are killed.
	SuspendProgram string        `yaml:"suspend_program"`
	ResumeProgram  string        `yaml:"resume_program"`
	ProgramTimeout time.Duration `yaml:"program_timeout"`
	// Idle is how long a node must have held no job, and have none planned on it.
	Idle time.Duration `yaml:"idle"`
	// SuspendTimeout is how long a node may take to disappear, ResumeTimeout how
	// long it may take to register again.
	SuspendTimeout time.Duration `yaml:"suspend_timeout"`
	ResumeTimeout  time.Duration `yaml:"resume_timeout"`
	// KeepIdle is how many idle nodes stay up, AtOnce the most that are powered
	// down, and up, in a minute.
	KeepIdle int `yaml:"keep_idle"`
	AtOnce   int `yaml:"at_once"`
	// Exclude are host lists of nodes that stay up. Partitions are those whose
	// nodes are powered down; empty means all nodes.
	Exclude    []string `yaml:"exclude"`
	Partitions []string `yaml:"partitions"`
	// Policy is idle, which powers down every node that is idle long enough, or
	// forecast, which keeps as many up as are forecast to be needed: every
	// ForecastEvery, for ForecastHorizon ahead, once demand is known for
	// ForecastLearn, plus ForecastSpare percent of the nodes.
	Policy          string        `yaml:"policy"`
	ForecastEvery   time.Duration `yaml:"forecast_every"`
	ForecastHorizon time.Duration `yaml:"forecast_horizon"`
	ForecastLearn   time.Duration `yaml:"forecast_learn"`
	ForecastSpare   int           `yaml:"forecast_spare"`
}

// The policies of power saving.
const (
	PowerByIdle     = "idle"
	PowerByForecast = "forecast"
)

// usualPower returns the defaults.
func usualPower() PowerSaving {
	return PowerSaving{
		ProgramTimeout: time.Minute, SuspendTimeout: 2 * time.Minute, ResumeTimeout: 10 * time.Minute, AtOnce: 10,
		Policy: PowerByIdle, ForecastEvery: 10 * time.Minute, ForecastHorizon: 3 * time.Hour, ForecastLearn: 24 * time.Hour, ForecastSpare: 5,
	}
}

// On reports whether the site powers nodes down.
func (s *PowerSaving) On() bool { return s.SuspendProgram != "" || s.ResumeProgram != "" }

// Excluded returns the nodes of Exclude.
func (s *PowerSaving) Excluded() (cluster.HostList, error) {
	text := ""
	for i, x := range s.Exclude {
		if i > 0 {
			text += ","
		}
		text += x
	}
	if text == "" {
		return cluster.HostList{}, nil
	}
	return cluster.ParseHostList(text)
}

func (p *Problems) powerSaving(c *Coordinator) {
	s, lease := &c.Power, c.Lease.Agent
	checkSignal(p, &c.Energy)
	if !s.On() {
		switch {
		case s.Idle != 0:
			p.addf("power_saving.suspend_program", "is missing, but power_saving.idle is given; name the programs that power nodes down and up")
		case s.Policy != PowerByIdle:
			p.addf("power_saving.suspend_program", "is missing, but power_saving.policy is given; name the programs that power nodes down and up")
		}
		return
	}
	p.path("power_saving.suspend_program", s.SuspendProgram, required)
	p.path("power_saving.resume_program", s.ResumeProgram, required)
	p.span("power_saving.program_timeout", s.ProgramTimeout, time.Second, time.Hour)
	p.span("power_saving.idle", s.Idle, time.Second, 30*24*time.Hour)
	p.span("power_saving.suspend_timeout", s.SuspendTimeout, 10*time.Second, time.Hour)
	if s.SuspendTimeout <= lease {
		p.addf("power_saving.suspend_timeout", "is %v, want more than lease.agent (%v), after which a node that is off is known to be", s.SuspendTimeout, lease)
	}
	p.span("power_saving.resume_timeout", s.ResumeTimeout, 10*time.Second, 24*time.Hour)
	p.number("power_saving.keep_idle", s.KeepIdle, 0, 100_000)
	p.number("power_saving.at_once", s.AtOnce, 1, 10_000)
	checkForecast(p, s)
	if _, err := s.Excluded(); err != nil {
		p.addf("power_saving.exclude", "%v", err)
	}
	for i, name := range s.Partitions {
		if err := cluster.CheckPartitionName(name); err != nil {
			p.addf(indexed("power_saving.partitions", i), "%v", err)
		}
	}
}

// checkForecast checks the settings of the demand forecast.
func checkForecast(p *Problems, s *PowerSaving) {
	if s.Policy != PowerByIdle && s.Policy != PowerByForecast {
		p.addf("power_saving.policy", "is %q, want %s or %s", s.Policy, PowerByIdle, PowerByForecast)
	}
	p.span("power_saving.forecast_every", s.ForecastEvery, time.Second, 6*time.Hour)
	p.span("power_saving.forecast_horizon", s.ForecastHorizon, time.Second, 7*24*time.Hour)
	if s.ForecastHorizon < s.ForecastEvery {
		p.addf("power_saving.forecast_horizon", "is %v, want no less than power_saving.forecast_every (%v)", s.ForecastHorizon, s.ForecastEvery)
	}
	p.span("power_saving.forecast_learn", s.ForecastLearn, 0, 28*24*time.Hour)
	if most := power.MaxSlots * s.ForecastEvery; s.ForecastEvery > 0 && s.ForecastLearn > most {
		p.addf("power_saving.forecast_learn", "is %v, but with power_saving.forecast_every %v only the last %v are remembered", s.ForecastLearn, s.ForecastEvery, most)
	}
	p.number("power_saving.forecast_spare", s.ForecastSpare, 0, 100)
}

// program checks that a program exists; an empty path is checked elsewhere.
func (p *Problems) program(key, path string) {
	if path == "" {
		return
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		*p = append(*p, Problem{Key: key, Text: err.Error(), Err: err})
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		p.addf(key, "%s is not an executable file; name a program", path)
	case info.Mode()&0o002 != 0:
		p.addf(key, "%s is world-writable; chmod o-w it", path)
	}
}
