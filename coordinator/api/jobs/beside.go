package jobs

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/model/interfere"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// beside collects the jobs with the given ids.
func (c *Jobs) beside(ids []uint64) ([]learner.Sharer, error) {
	if len(ids) > interfere.MaxSet {
		return nil, cluster.Errorf(cluster.CodeInvalid, "beside: %d jobs, at most %d can share a GPU", len(ids), interfere.MaxSet)
	}
	var out []learner.Sharer
	for i, id := range ids {
		j, ok := c.fsm.Job(cluster.JobID(id))
		switch {
		case !ok:
			return nil, noJob(id)
		case slices.Contains(ids[:i], id):
			return nil, cluster.Errorf(cluster.CodeInvalid, "beside: job %d is named twice", id)
		case j.Spec.GPUs == 0:
			return nil, cluster.Errorf(cluster.CodeInvalid, "beside: job %d uses no GPU that it could share", id)
		}
		out = append(out, learner.Sharer{ID: j.ID, Spec: j.Spec, Estimates: j.Estimates})
	}
	return out, nil
}

// sharing predicts a set of jobs on each kind of GPU in the cluster.
func (c *Jobs) sharing(set []learner.Sharer, nodes []*cluster.Node) []*apiv1.Sharing {
	m := c.learn.Company.Model()
	var out []*apiv1.Sharing
	for _, k := range learner.KindsOf(nodes) {
		s := interfere.Set{GPUType: k.GPUType, Mode: k.Mode}
		for i := range set {
			s.Jobs = append(s.Jobs, set[i].On(k.GPUType))
		}
		msg := &apiv1.Sharing{
			GpuType: k.GPUType, Mode: k.Mode.String(), Limit: c.limitOn(m, k), Advice: AdviceToAPI(m.Advice(k.GPUType, k.Mode), k.GPUType),
		}
		for i, x := range m.Explain(s) {
			msg.Jobs = append(msg.Jobs, &apiv1.SharedJob{Id: uint64(set[i].ID), Speed: x.Speed, Slowdown: 1 / x.Speed, Parts: partsOf(&x, set, i)})
		}
		out = append(out, msg)
	}
	return out
}

// limitOn returns the slowdown above which no job is placed on a kind of GPU, 0 if
// there is none: until something was learned there.
func (c *Jobs) limitOn(m *interfere.Model, k learner.Card) float64 {
	if _, known := learner.SharingOf(m, k); !known {
		return 0
	}
	return float64(max(0, c.lead.Scheduling().Policy.MaxSlowdownMilli)) / 1000
}

// partsOf says where the slowdown of the i-th job of a set comes from, one line for
// each neighbour.
func partsOf(x *interfere.Explanation, set []learner.Sharer, i int) []string {
	var out []string
	others := slices.Delete(slices.Clone(set), i, i+1)
	for _, n := range neighboursInOrder(x, others) {
		var why []string
		add := func(v float64, format string, args ...any) {
			if math.Abs(v) >= 0.005 {
				why = append(why, fmt.Sprintf("%+.2f ", v)+fmt.Sprintf(format, args...))
			}
		}
		add(n.Compute, "computing at the same time")
		add(n.Memory, "using the memory at the same time")
		add(n.Bandwidth, "more bandwidth demanded than available")
		add(n.Blind, "because a utilization is unknown")
		add(n.Switch, "switching")
		add(n.Sensitivity, "learned: how easily this job is slowed down")
		add(n.Aggression, "learned: how much the other slows down others")
		add(n.History, "learned: both together, in %d runs", n.Together)
		line := fmt.Sprintf("%s: %.2f×", nameOf(n.of), 1+n.Excess)
		if len(why) > 0 {
			line += " (" + strings.Join(why, ", ") + ")"
		}
		out = append(out, line)
	}
	if x.Crowd >= 0.005 {
		out = append(out, fmt.Sprintf("all together: +%.2f more bandwidth demanded than available", x.Crowd))
	}
	return out
}

type namedNeighbour struct {
	interfere.Neighbour
	of cluster.JobID
}

// neighboursInOrder gives the neighbours of an explanation their ids, in the order
// of others: they come in their own order, by signature.
func neighboursInOrder(x *interfere.Explanation, others []learner.Sharer) []namedNeighbour {
	left := slices.Clone(x.Neighbours)
	var out []namedNeighbour
	for _, o := range others {
		k := slices.IndexFunc(left, func(n interfere.Neighbour) bool { return n.Signature == o.Spec.Signature })
		if k < 0 {
			continue
		}
		out = append(out, namedNeighbour{left[k], o.ID})
		left = slices.Delete(left, k, k+1)
	}
	return out
}

func nameOf(id cluster.JobID) string {
	if id == 0 {
		return "the new job"
	}
	return "job " + id.String()
}

// AdviceToAPI returns what was learned about sharing a kind of GPU, for users.
func AdviceToAPI(a interfere.Advice, gpuType string) *apiv1.SharingAdvice {
	verdict := map[interfere.Verdict]string{interfere.Unsure: "unsure", interfere.Gains: "gains", interfere.Loses: "loses"}[a.Verdict]
	return &apiv1.SharingAdvice{
		GpuType: gpuType, Mode: a.Mode.String(), Verdict: verdict, Pairs: uint32(a.Pairs), Losing: uint32(a.Losing), MeanSum: a.MeanSum, StdErr: a.StdErr,
	}
}

// slowdown returns how many times longer a running job is predicted to take next to
// the others on its GPUs, on the worst of them; 0 if it shares none.
func (c *Jobs) slowdown(j *cluster.Job) float64 {
	a := j.Live()
	if a == nil {
		return 0
	}
	worst := 0.0
	at := map[cluster.GPUID]cluster.NodeID{}
	for _, b := range a.Held() {
		for _, gs := range b.GPUs {
			at[gs.GPU] = b.Node
		}
	}
	for gpu, node := range at { // the maximum does not depend on the order
		on := c.fsm.GPUJobs(gpu)
		n, ok := c.fsm.Node(node)
		if !ok || len(on) < 2 {
			continue
		}
		g := n.GPU(gpu)
		if g == nil {
			continue
		}
		set, at := interfere.Set{GPUType: g.Type, Mode: learner.ModeOf(g.CapMode)}, -1
		for _, id := range on {
			o, ok := c.fsm.Job(id)
			if !ok {
				continue
			}
			if id == j.ID {
				at = len(set.Jobs)
			}
			set.Jobs = append(set.Jobs, (&learner.Sharer{ID: id, Spec: o.Spec, Estimates: o.Estimates}).On(g.Type))
		}
		if at >= 0 && len(set.Jobs) > 1 {
			worst = max(worst, 1/c.learn.Company.Model().Speeds(set, nil)[at])
		}
	}
	return worst
}
