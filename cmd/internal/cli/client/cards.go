package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// Cards are the cluster's GPUs by their ids.
type Cards map[string]card

type card struct {
	gpu  *apiv1.GPU
	node string
}

// CardsOf reads those where something of the jobs can be said by them. They are a
// help: where nodes cannot be read it is none, and no error.
func CardsOf(ctx context.Context, c *Client, jobs []*apiv1.Job) Cards {
	if !slices.ContainsFunc(jobs, func(j *apiv1.Job) bool { return j.GetQueue() != "" || ownsCards(j) }) {
		return nil
	}
	nodes, err := GetNodes(ctx, c, nil)
	if err != nil {
		return nil
	}
	cards := Cards{}
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			cards[g.GetUuid()] = card{g, n.GetId()}
		}
	}
	return cards
}

// Name is what people call a GPU, GPU 1 of n1, and its id where it is not known.
func (c Cards) Name(id string) string {
	if on, ok := c[id]; ok {
		return fmt.Sprintf("GPU %d of %s", on.gpu.GetIndex(), on.node)
	}
	return id
}

// Now says of a job that runs, and has all its GPUs to itself, what those show right
// now; "" where that is not known.
func (c Cards) Now(j *apiv1.Job) string {
	if !ownsCards(j) {
		return ""
	}
	var most, busy int64
	for _, share := range j.GetGpus() {
		g := c[share.GetUuid()].gpu
		if g == nil || len(g.GetJobs()) != 1 || g.GetMeasuredUtilMilli() < 0 || g.GetMeasuredUsedMib() < 0 {
			return ""
		}
		most, busy = max(most, g.GetMeasuredUsedMib()), busy+g.GetMeasuredUtilMilli()
	}
	n := len(j.GetGpus())
	percent, held := console.PercentOf(busy/int64(n)), units.HumanMiB(most)
	if n > 1 {
		return fmt.Sprintf("its %d GPUs, which it has to itself, are %s busy on average with up to %s in use", n, percent, held)
	}
	return fmt.Sprintf("%s, which it has to itself, is %s busy with %s in use", c.Name(j.GetGpus()[0].GetUuid()), percent, held)
}

// ownsCards reports whether a job runs and has nobody beside it on its GPUs.
func ownsCards(j *apiv1.Job) bool {
	return j.GetState() == cluster.JobRunning.String() && len(j.GetGpus()) > 0 && len(j.GetNeighbours()) == 0 && j.GetMeasured().GetSeconds() == 0
}
