package screen_test

import (
	"fmt"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/top/screen"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// large is 10,000 jobs, of which 3,000 run three to a card on 1,000 cards.
func large() (jobs []*apiv1.Job, nodes []*apiv1.Node) {
	for n := range 125 {
		node := &apiv1.Node{Id: fmt.Sprintf("gpu%03d", n), State: "ready"}
		for i := range uint32(8) {
			g := &apiv1.GPU{Uuid: fmt.Sprintf("GPU-%d-%d", n, i), Index: i, Type: "H100", MemMib: 81559, SellableMib: 80000, LedgerUsedMib: 60000, Shares: 3, MeasuredUsedMib: 50000, MeasuredUtilMilli: 600}
			for range 3 {
				id := uint64(len(jobs) + 1)
				g.Jobs = append(g.Jobs, id)
				jobs = append(jobs, &apiv1.Job{Id: id, Name: fmt.Sprintf("train-%d", id), User: fmt.Sprintf("user%d", id%50), Uid: uint32(id % 50), State: "RUNNING", Node: node.Id, GpusWanted: 1,
					Gpus: []*apiv1.GPUShare{{Uuid: g.Uuid, Type: "H100", Index: i, Share: &apiv1.Share{MemMib: 20000, Milli: 300}}}, Started: clitest.Ago(1e12)})
			}
			node.Gpus = append(node.Gpus, g)
		}
		nodes = append(nodes, node)
	}
	for id := uint64(len(jobs) + 1); id <= 10000; id++ {
		jobs = append(jobs, &apiv1.Job{Id: id, Name: fmt.Sprintf("wait-%d", id), User: fmt.Sprintf("user%d", id%50), Uid: uint32(id % 50), State: "PENDING", Reason: "GPUMemory", GpusWanted: 1, Submitted: clitest.Ago(1e12)})
	}
	return jobs, nodes
}

func largeScreen(width, height int) (s *screen.Screen, nodes []*apiv1.Node) {
	jobs, nodes := large()
	s = screen.New(screen.Config{Now: clitest.Now, Me: "user7"})
	s.Update(screen.Size{Width: width, Height: height})
	s.Update(screen.Jobs{All: true, Jobs: jobs})
	s.Update(screen.Nodes{Nodes: nodes})
	return s, nodes
}

// BenchmarkScroll is a key that scrolls, and the screen that it gives.
func BenchmarkScroll(b *testing.B) {
	for _, tab := range []string{"1", "2"} {
		s, _ := largeScreen(200, 50)
		press(s, tab)
		b.Run("tab"+tab, func(b *testing.B) {
			for b.Loop() {
				press(s, "pgdown")
				_ = s.View()
			}
		})
	}
}

// BenchmarkNodes is what each asking for the nodes costs the screen.
func BenchmarkNodes(b *testing.B) {
	s, nodes := largeScreen(200, 50)
	at := clitest.Now
	for b.Loop() {
		at = at.Add(screen.Every)
		s.Update(screen.Tick{At: at})
		s.Update(screen.Nodes{Nodes: nodes})
		_ = s.View()
	}
}

// BenchmarkChange is a change of one job among all.
func BenchmarkChange(b *testing.B) {
	s, _ := largeScreen(200, 50)
	for i := uint64(0); b.Loop(); i++ {
		s.Update(screen.Jobs{Jobs: []*apiv1.Job{{Id: 5000, State: "PENDING", Revision: i + 1}}})
		_ = s.View()
	}
}

// BenchmarkTick is a second in which nothing happens.
func BenchmarkTick(b *testing.B) {
	s, _ := largeScreen(200, 50)
	for b.Loop() {
		s.Update(screen.Tick{At: clitest.Now})
		_ = s.View()
	}
}
