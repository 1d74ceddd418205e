package admin

import (
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// printHistories prints what each coordinator keeps of finished jobs, and any
// problem there. Older ones report nothing.
func printHistories(e *console.Env, members []*apiv1.Member) {
	for _, m := range members {
		if p := m.GetDiskProblem(); p != "" {
			e.Printf("%s is low on disk space: %s\n", m.GetId(), console.Escape(p))
		} else if m.GetDiskSize() > 0 {
			e.Printf("%s has %s of its disk's %s free\n", m.GetId(), units.HumanMiB(int64(m.GetDiskFree()>>20)), units.HumanMiB(int64(m.GetDiskSize()>>20)))
		}
		if n := m.GetHistoryJobs(); n > 0 {
			e.Printf("%s keeps %s in %s\n", m.GetId(), console.Plural(int(n), "finished job", "finished jobs"), units.HumanMiB(int64(m.GetHistoryBytes()>>20)+1))
		}
		if n := m.GetHistoryHoles(); n > 0 {
			e.Printf("%s lacks %s of the history and is fetching it from the others\n", m.GetId(), console.Plural(int(n), "part", "parts"))
		}
		if p := m.GetHistoryProblem(); p != "" {
			e.Printf("%s cannot write its history; finished jobs are kept in memory: %s\n", m.GetId(), console.Escape(p))
		}
	}
}
