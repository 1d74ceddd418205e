package daemon

import (
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/coordinator/lead"
	"github.com/berth-scheduler/berth/coordinator/power"
	rule "github.com/berth-scheduler/berth/scheduler/power"
)

// powerSavingOf is how idle nodes are powered down, nil where they are not.
func powerSavingOf(s *config.PowerSaving) (*lead.PowerSaving, error) {
	if !s.On() {
		return nil, nil
	}
	exclude, err := s.Excluded()
	if err != nil {
		return nil, err
	}
	return &lead.PowerSaving{
		Rule: rule.Rule{
			Idle: s.Idle, ResumeTimeout: s.ResumeTimeout, KeepIdle: s.KeepIdle, AtOnce: s.AtOnce, Exclude: exclude, Partitions: s.Partitions,
		},
		SuspendTimeout: s.SuspendTimeout,
		Suspend:        power.Program{Path: s.SuspendProgram, Timeout: s.ProgramTimeout}.Run,
		Resume:         power.Program{Path: s.ResumeProgram, Timeout: s.ProgramTimeout}.Run,
	}, nil
}
