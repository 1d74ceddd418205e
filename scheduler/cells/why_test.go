package cells

import (
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestWhyByHand: what a team is told of its cells when a job of its waits, and
// nothing where they are not the reason. Team x has a cell of four cards and one of
// two, y one of one, of eight cards on two nodes.
func TestWhyByHand(t *testing.T) {
	t.Parallel()
	const may, borrows = "; it may borrow when preemptible: submit with a checkpoint hook", "; it borrows as soon as cards are idle"
	tenants := []Tenant{tenant("x", "4=1", "2=1"), tenant("y", "1=1")}
	own := func(id cluster.JobID, g ...cluster.GPUID) Job { return Job{ID: id, Tenant: "x", GPUs: g} }
	four, two, three := own(1, gpus("a", 0, 1, 2, 3)...), own(2, gpus("b", 0, 1)...), own(3, gpus("a", 0, 1, 2)...)
	for _, c := range []struct {
		name string
		jobs []Job
		gone string // the node that is drained
		req  Request
		want string
	}{
		{"guaranteed", nil, "", Request{Tenant: "x", GPUs: 4}, ""},
		{"guaranteed beside the other cell's", []Job{two}, "", Request{Tenant: "x", GPUs: 4}, ""},
		{"of no team", nil, "", Request{GPUs: 1}, "its user is of no team with a guarantee" + may},
		{"of no team, and may be ended", nil, "", Request{GPUs: 1, Preemptible: true}, "its user is of no team with a guarantee" + borrows},
		{"a team without cells", nil, "", Request{Tenant: "z", GPUs: 1}, "team z is guaranteed no g" + may},
		{"wider than any cell", nil, "", Request{Tenant: "x", GPUs: 5}, "the largest cells of team x have 4 GPUs, and it needs 5 on one node" + may},
		{"wider than the only cell", nil, "", Request{Tenant: "y", GPUs: 2, Preemptible: true}, "the largest cells of team y have 1 GPUs, and it needs 2 on one node" + borrows},
		{"all in use", []Job{four, two}, "", Request{Tenant: "x", GPUs: 1}, "team x has 6 of 6 GPUs of its cells in use" + may},
		{"more than all in use", []Job{four, two, own(4, gpus("b", 2)...)}, "", Request{Tenant: "x", GPUs: 1}, "team x has 6 of 6 GPUs of its cells in use" + may},
		{"some free, but not together", []Job{three, two}, "", Request{Tenant: "x", GPUs: 2}, "team x has 5 of 6 GPUs of its cells in use, and no cell holds 2 more" + may},
		{"the one that is free is enough", []Job{three, two}, "", Request{Tenant: "x", GPUs: 1}, ""},
		{"hardware is short", nil, "a", Request{Tenant: "x", GPUs: 1}, "tenant x: 1 of its 1 cells of 2 GPUs (g) cannot be kept: nodes are drained or silent, or others who may not be ended lie there"},
		{"short of smaller cells than it needs", nil, "a", Request{Tenant: "x", GPUs: 4}, ""},
		{"short of another team's", nil, "a", Request{Tenant: "z", GPUs: 1}, "team z is guaranteed no g" + may},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes := []*cluster.Node{node("a", 4), node("b", 4)}
			for _, n := range nodes {
				n.Drain = c.gone == string(n.ID)
			}
			c.req.ID, c.req.GPUType = 99, "g"
			if got := Bind(nodes, tenants, c.jobs).Why(c.req); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
