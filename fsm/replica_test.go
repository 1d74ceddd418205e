package fsm

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/fsm/jobs"
	"github.com/berth-scheduler/berth/fsm/orders"
	"github.com/berth-scheduler/berth/fsm/table"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// recountLedger makes the ledger anew from the nodes and the live attempts.
func recountLedger(s *State) *dispatch.Ledger {
	l := dispatch.NewLedger(s.Nodes())
	for _, j := range s.roll.Jobs.List() {
		if a := j.Live(); a != nil {
			for _, b := range a.Held() {
				for _, g := range b.GPUs {
					l.Remember(b.Node, g.GPU)
				}
				l.Take(b)
			}
		}
	}
	return l
}

// checkDerived: all that is not stored is what the stored gives, on a replica
// that went through the log and on one that was restored alike.
func checkDerived(s *State) error {
	if want := recountLedger(s); !s.fleet.Ledger().Equal(want) {
		return fmt.Errorf("ledger\n%+v\nnew count\n%+v", s.fleet.Ledger(), want)
	}
	owners := map[cluster.GPUID]cluster.NodeID{}
	for _, n := range s.fleet.Nodes() {
		for i := range n.GPUs {
			owners[n.GPUs[i].ID] = n.ID
		}
	}
	if d := cmp.Diff(owners, cardsOf(s)); d != "" {
		return fmt.Errorf("owners of GPUs: %s", d)
	}
	if err := errors.Join(checkSpecBytes(s), checkBulks(s)); err != nil {
		return err
	}
	s.hashNow()
	if d := s.roll.Digests; d.Jobs.Len() != s.roll.Jobs.Len() || d.Arrays.Len() != len(s.roll.Arrays) {
		return fmt.Errorf("digests of %d jobs and %d arrays are held; there are %d and %d", d.Jobs.Len(), d.Arrays.Len(), s.roll.Jobs.Len(), len(s.roll.Arrays))
	}
	if s.hash.Dirty() != 0 {
		return fmt.Errorf("something is dirty after a hash")
	}
	if err := checkArrayIndexes(s); err != nil {
		return err
	}
	if s.desk.Requests.Len() != len(s.desk.Requests.Order()) {
		return fmt.Errorf("%d requests, %d in order", s.desk.Requests.Len(), len(s.desk.Requests.Order()))
	}
	for i, r := range s.desk.Requests.Order() {
		if s.desk.Requests.Get(r.Key) != r || i > 0 && s.desk.Requests.Order()[i-1].At > r.At {
			return fmt.Errorf("request %d is out of order or gone", i)
		}
	}
	if !slices.IsSortedFunc(s.roll.Finished, func(a, b cluster.JobID) int {
		if jobs.EndedBefore(s.roll.Jobs.Get(a), s.roll.Jobs.Get(b)) {
			return -1
		}
		return 1
	}) {
		return fmt.Errorf("finished jobs are out of order: %v", s.roll.Finished)
	}
	all := s.roll.Jobs.List()
	for _, check := range []func(*State, []*cluster.Job) error{checkJobs, checkIndexes, checkQueues} {
		if err := check(s, all); err != nil {
			return err
		}
	}
	return nil
}

// differ is cmp.Diff, which takes ten times as long to see that two values are equal.
func differ(x, y any, opts ...cmp.Option) string {
	if reflect.DeepEqual(x, y) {
		return ""
	}
	return cmp.Diff(x, y, opts...)
}

// sameInside: replicas agree on what is derived too, or they would part at a
// later entry.
func sameInside(a, b *State) error {
	if !a.fleet.Ledger().Equal(b.fleet.Ledger()) {
		return fmt.Errorf("ledgers differ:\n%+v\n%+v", a.fleet.Ledger(), b.fleet.Ledger())
	}
	if !slices.Equal(a.roll.Finished, b.roll.Finished) {
		return fmt.Errorf("finished: %v and %v", a.roll.Finished, b.roll.Finished)
	}
	if !maps.Equal(cardsOf(a), cardsOf(b)) || differ(onCards(a), onCards(b)) != "" {
		return fmt.Errorf("GPUs: %v %v and %v %v", cardsOf(a), onCards(a), cardsOf(b), onCards(b))
	}
	if d := differ(weightsOf(a), weightsOf(b)); d != "" {
		return fmt.Errorf("weights: %s", d)
	}
	if d := differ(a.learned.Samples(), b.learned.Samples(), cmpopts.EquateEmpty()); d != "" {
		return fmt.Errorf("samples: %s", d)
	}
	if d := differ(a.roll.Queues.All(), b.roll.Queues.All()); d != "" {
		return fmt.Errorf("queues: %s", d)
	}
	if !slices.EqualFunc(a.desk.Requests.Order(), b.desk.Requests.Order(), func(x, y *orders.Request) bool {
		return x.Key == y.Key && x.BodyHash == y.BodyHash && x.At == y.At && slices.Equal(x.Jobs(), y.Jobs())
	}) {
		return fmt.Errorf("requests differ")
	}
	if x, y := a.roll.InStates(cluster.JobPending, cluster.JobQueued), b.roll.InStates(cluster.JobQueued, cluster.JobPending); differ(x, y, alike) != "" {
		return fmt.Errorf("who waits: %s", differ(x, y, alike))
	}
	return sameArrays(a, b)
}

// checkOrder: jobs start in the order of their GPUs' queues, or the attempt
// says why not. queues are those before the plan.
func checkOrder(queues map[cluster.GPUID][]dispatch.Waiter, after *FSM, cmd *logv1.ApplyPlan, res *dispatch.Result) error {
	queues = maps.Clone(queues)
	plan := conv.PlanFromLog(cmd)
	for _, id := range res.Started {
		j, ok := after.Job(id.Job)
		if !ok || len(j.Attempts) < int(id.No) {
			return fmt.Errorf("%s was started and is not there", id)
		}
		a := &j.Attempts[id.No-1]
		if !slices.ContainsFunc(plan.Starts, func(st dispatch.Start) bool {
			return st.Job == id.Job && cmp.Equal(st.Berth, a.Berth) && (a.Gang == nil && st.Rest == nil || cmp.Equal(st.Rest, a.Gang.Rest)) && st.Overtook == a.Overtook && cmp.Equal(st.Estimate, a.Estimate)
		}) {
			return fmt.Errorf("%s lies where no plan put it: %+v", id, a.Berth)
		}
		for _, g := range a.AllGPUs() {
			if q := queues[g.GPU]; len(q) > 0 && q[0].Job != id.Job && a.Overtook == "" {
				return fmt.Errorf("%s overtook job %d on GPU %s for no reason", id, q[0].Job, g.GPU)
			}
		}
		for gpu, q := range queues {
			queues[gpu] = slices.DeleteFunc(slices.Clone(q), func(w dispatch.Waiter) bool { return w.Job == id.Job })
		}
	}
	if n := len(res.Started) + res.Moved + len(res.Rejected); n != len(plan.Starts)+len(plan.Moves) {
		return fmt.Errorf("%d parts of a plan were answered, it had %d", n, len(plan.Starts)+len(plan.Moves))
	}
	return nil
}

func weightsOf(s *State) (out []string) {
	w := table.NewWriter(func(r *logv1.Record) error {
		if r.GetSample() == nil {
			out = append(out, r.String())
		}
		return nil
	})
	s.learned.Each(w)
	return out
}

// alike compares specs wherever their large parts lie.
var alike = cmp.Comparer(func(x, y *cluster.Spec) bool { return x == y || cmp.Equal(entire(x), entire(y)) })

// checkSpecBytes counts anew, by texts and not by sums.
func checkSpecBytes(s *State) error {
	type part struct {
		uid  cluster.UID
		text string
	}
	counted, arrays, seen := map[cluster.UID]int64{}, map[cluster.JobID]bool{}, map[part]bool{}
	for _, j := range s.roll.Jobs.List() {
		if j.InArray() && arrays[j.ArrayJobID] || !j.InArray() && j.State.Terminal() {
			continue
		}
		arrays[j.ArrayJobID] = true
		spec := j.Spec
		n := len(spec.Name) + len(spec.Dir) + len(spec.Image) + len(spec.Stdin) + len(spec.Stdout) + len(spec.Stderr) + len(spec.Comment) + len(spec.Features) + len(strings.Join(spec.Command, ""))
		env, script := spec.Large()
		if text := strings.Join(env, "") + string(script); spec.Bulk == nil || !seen[part{j.Owner.UID, text}] {
			seen[part{j.Owner.UID, text}] = true
			n += len(text)
		}
		counted[j.Owner.UID] += int64(n)
	}
	total := int64(0)
	for _, n := range counted {
		total += n
	}
	kept := s.blobs.Figures()
	if d := cmp.Diff(counted, kept.Specs, cmpopts.EquateEmpty()); d != "" || kept.SpecBytes != total {
		return fmt.Errorf("specs have %d bytes, counted anew %d: %s", kept.SpecBytes, total, d)
	}
	return nil
}
