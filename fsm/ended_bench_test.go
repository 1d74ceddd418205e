package fsm

import (
	"fmt"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// BenchmarkEndAndForget1000 submits and ends 1,000 jobs, of which the oldest
// 1,000 are forgotten for them.
func BenchmarkEndAndForget1000(b *testing.B) {
	m := newMachine(b)
	m.must(initCmd("c1", 1000))
	next := cluster.JobID(1)
	specs := make([]*cluster.Spec, 1000)
	for i := range specs {
		specs[i] = spec(1)
	}
	n := 0
	for b.Loop() {
		m.must(submitCmd(next, fmt.Sprintf("request-%012d", n), 1000, specs...))
		cmds := make([]*logv1.Command, len(specs))
		for i := range cmds {
			cmds[i] = cancelCmd(next+cluster.JobID(i), 1000)
		}
		m.do(cmds...)
		next += 1000
		n++
	}
}
