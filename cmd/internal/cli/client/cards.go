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

// Cards are the cluster's GPUs by id.
type Cards map[string]card

type card struct {
	gpu  *apiv1.GPU
	node string
}

// CardsOf reads the cluster's GPUs if they can say anything about the jobs.
// They are optional: if nodes cannot be read it returns none, and no error.
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

// Name returns a GPU's readable name, GPU 1 of n1, or its id if it is unknown.
func (c Cards) Name(id string) string {
	if on, ok := c[id]; ok {
		return fmt.Sprintf("GPU %d of %s", on.gpu.GetIndex(), on.node)
	}
	return id
}

// Now returns what the GPUs of a running job that has them to itself show
// right now; "" if that is unknown.
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

// ownsCards reports whether a job runs and shares its GPUs with no other.
func ownsCards(j *apiv1.Job) bool {
	return j.GetState() == cluster.JobRunning.String() && len(j.GetGpus()) > 0 && len(j.GetNeighbours()) == 0 && j.GetMeasured().GetSeconds() == 0
}
