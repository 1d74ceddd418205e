package fsm
import ("testing";"time";"fmt";"github.com/hashicorp/raft";"github.com/berth-scheduler/berth/cluster")
func TestZZ(t *testing.T){
	m := farm(t, 42, 100_000)
	m.f.Hash()
	for round := uint64(1); round<=5000; round++ {
		var p cluster.Plan
		for i := range uint64(20) {
			p.Moves = append(p.Moves, cluster.QueueMove{
				Job: cluster.JobID((round*20+i)%100_000 + 1), GPU: cluster.GPUID(fmt.Sprintf("n%04d-g0", i)), Rank: int64(round), Reason: cluster.ReasonQueueOrder,
			})
		}
		m.index++
		l := &raft.Log{Index: m.index, Term: testTerm, Data: encode(t, testTerm, m.now, planCmd(p))}
		nd := len(m.f.st.hash.jobs.dirty)
		began := time.Now()
		m.f.Apply(l)
		if d := time.Since(began); d > 15*time.Millisecond { t.Log(m.index, d, nd, len(m.f.st.hash.jobs.dirty)) }
	}
}
