package coordinator

import (
	"strconv"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/scheduler"
)

// enterAs does enterWarned, and gives the job its standing.
func (c *Coordinator) enterAs(who caller, spec *cluster.Spec, parts []*cluster.Partition) (part *cluster.Partition, warnings []string, err error) {
	if part, warnings, err = enterWarned(spec, parts); err != nil {
		return nil, nil, err
	}
	more, err := c.enterStanding(who, spec)
	if err == nil {
		err = c.mayUse(who, spec, part)
	}
	return part, append(warnings, more...), err
}

// mayUse refuses a job that its partition does not let in. Administrators are
// in every group.
func (c *Coordinator) mayUse(who caller, spec *cluster.Spec, part *cluster.Partition) error {
	if part == nil || part.Access == nil {
		return nil
	}
	e := part.Access.Refuses(part.Name, &cluster.Asker{
		Accounts: c.fsm.AccountsFrom(spec.Account), QOS: spec.QOS,
		InGroup: func(group string) bool {
			return who.admin || group == strconv.FormatUint(uint64(who.gid), 10) || c.cfg.InGroup != nil && c.cfg.InGroup(who.name, who.gid, group)
		},
	})
	if e == nil {
		return nil
	}
	return e
}

// enterStanding gives a job the account, the quality of service and the nice
// value that it runs under, or refuses it. Where there are no accounts a name
// stays with the job, so that scripts written for another cluster run and
// reports can tell them apart.
func (c *Coordinator) enterStanding(who caller, spec *cluster.Spec) (warnings []string, err error) {
	if spec.Nice < 0 && !who.admin {
		return nil, cluster.Errorf(cluster.CodeDenied, "nice: %d would put the job before those of others, which only administrators may do; use 0 to %d", spec.Nice, cluster.MaxNice)
	}
	accounts, qos := c.fsm.HasAccounts()
	if spec.Account != "" && !accounts {
		warnings = append(warnings, "account "+spec.Account+": this cluster has no accounts; the name is kept with the job")
	}
	if spec.QOS != "" && !qos {
		warnings = append(warnings, "qos "+spec.QOS+": this cluster has no qualities of service; the name is kept with the job")
	}
	if e := c.fsm.EnterStanding(who.uid, who.admin, spec); e != nil {
		return warnings, e
	}
	return warnings, nil
}

// roomForUser bounds the jobs of one user, so that a script that runs away does
// not fill the state.
func (c *Coordinator) roomForUser(who caller, n int) error {
	if has := c.fsm.UserJobs(who.uid); has+n > c.cfg.MaxPerUser {
		return cluster.Errorf(cluster.CodeExhausted, "AssocMaxSubmitJobLimit: user %d has %d jobs that wait or run and asks for %d more, at most %d are allowed (limits.jobs_per_user); submit again when some have ended", who.uid, has, n, c.cfg.MaxPerUser)
	}
	return nil
}

// roomForBytes bounds what the specs of one user's jobs, and of all, take in the
// state, in memory or beside it on the disk.
func (c *Coordinator) roomForBytes(who caller, jobs []*cluster.Job) error {
	user, all, more := c.fsm.UserBytes(who.uid, jobs)
	switch {
	case user+more > c.cfg.MaxBytesPerUser:
		return cluster.Errorf(cluster.CodeExhausted, "AssocMaxSubmitJobLimit: environments, scripts and arguments of user %d's jobs that wait or run take %d KiB and %d more are asked for, at most %d are allowed (limits.spec_mib_per_user); "+
			"equal environments with equal scripts count once: use an array, keep data in files, or submit again when some have ended", who.uid, user>>10, more>>10, c.cfg.MaxBytesPerUser>>10)
	case all+more > c.cfg.MaxBytes:
		return cluster.Errorf(cluster.CodeExhausted, "environments, scripts and arguments of all jobs that wait or run take %d MiB, at most %d are allowed (limits.spec_mib_total); submit again when some have ended", all>>20, c.cfg.MaxBytes>>20)
	}
	return nil
}

// fairEvery is how long an order of fair shares is used: use changes slowly, and
// passes come often.
const fairEvery = time.Second

// fairShares keeps the order of fair shares. It is safe for several goroutines.
type fairShares struct {
	mu   sync.Mutex
	rev  uint64
	tree *scheduler.FairTree
	at   time.Time
	last *cluster.Fair
}

// order returns the order as of now, at most fairEvery old; nil where there are
// no accounts.
func (f *fairShares) order(st *fsm.FSM, now time.Time) *cluster.Fair {
	if has, _ := st.HasAccounts(); !has {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rev := st.StandingRevision()
	if f.tree != nil && rev == f.rev && now.Sub(f.at) >= 0 && now.Sub(f.at) < fairEvery {
		return f.last
	}
	if f.tree == nil || rev != f.rev {
		d := st.Standing(cluster.TimeOf(now))
		f.tree, f.rev = scheduler.NewFairTree(d.Accounts, d.Members), rev
	}
	f.tree.Reset()
	st.EachUse(cluster.TimeOf(now), f.tree.Add)
	f.last, f.at = f.tree.Order(), now
	return f.last
}

// fairly tells whether fair shares count anywhere.
func (s *Scheduling) fairly() bool {
	if s.Policy.FairMilli > 0 {
		return true
	}
	for _, c := range s.Partitions {
		if c.Policy.FairMilli > 0 {
			return true
		}
	}
	return false
}

// stand adds the order of fair shares to a snapshot, where it counts.
func (p *planner) stand(snap *cluster.Snapshot, sched *Scheduling) {
	if !sched.fairly() {
		return
	}
	if fair := p.fair.order(p.fsm, p.clock()); fair != nil {
		s := cluster.Standing{Fair: fair}
		if snap.Standing != nil {
			s.QOS = snap.Standing.QOS
		}
		snap.Standing = &s
	}
}

// withinLimits takes out of a plan that a policy made which knows no quotas what
// quotas do not allow. Those whom no quota lets start now were not shown to it.
func withinLimits(snap *cluster.Snapshot, plan *cluster.Plan) {
	if snap.Limits == nil {
		return
	}
	jobs := make(map[cluster.JobID]*cluster.Job, len(snap.Waiting))
	for _, j := range snap.Waiting {
		jobs[j.ID] = j
	}
	limits, keep := snap.Limits.Clone(), plan.Starts[:0]
	for i := range plan.Starts {
		st := &plan.Starts[i]
		j, milli := jobs[st.Job], heldBy(snap.Ledger, st)
		if j == nil {
			continue
		}
		if r := limits.MayStart(cluster.HolderOf(j), milli); r.Code != "" {
			plan.Unplaced = append(plan.Unplaced, cluster.Unplaced{Job: j.ID, Reason: r})
			continue
		}
		limits.Count(cluster.HolderOf(j), 0, 1, milli)
		keep = append(keep, *st)
	}
	plan.Starts = keep
}

// startable leaves out who waits for a quota, as many as a quota has room for
// staying in: of each holder in order of ids.
func startable(snap *cluster.Snapshot) (waiting []*cluster.Job, held []cluster.Unplaced) {
	if snap.Limits == nil {
		return snap.Waiting, nil
	}
	limits := snap.Limits.Clone()
	for _, j := range snap.Waiting {
		least := int64(0)
		if j.Spec.GPUs > 0 {
			least = int64(j.Spec.GPUs*j.Spec.NodeCount()) * max(1, j.Spec.GPUMilli)
		}
		if r := limits.MayStart(cluster.HolderOf(j), least); r.Code != "" {
			held = append(held, cluster.Unplaced{Job: j.ID, Reason: r})
			continue
		}
		limits.Count(cluster.HolderOf(j), 0, 1, least)
		waiting = append(waiting, j)
	}
	return waiting, held
}

func heldBy(led *cluster.Ledger, st *cluster.Start) int64 {
	return cluster.HeldMilli(st.AllGPUs(), func(id cluster.GPUID) int64 {
		u, _ := led.GPU(id)
		return u.SellableMiB
	})
}

// planWithin asks a policy that knows no quotas.
func (c *Chosen) planWithin(snap *cluster.Snapshot) cluster.Plan {
	if snap.Limits == nil {
		return c.planOneNode(snap)
	}
	less := *snap
	var held []cluster.Unplaced
	less.Waiting, held = startable(snap)
	plan := c.planOneNode(&less)
	withinLimits(snap, &plan)
	plan.Unplaced = append(plan.Unplaced, held...)
	return plan
}

// limitReason says which quota keeps a job from starting, the zero Reason when
// none does.
func limitReason(snap *cluster.Snapshot, j *cluster.Job, nodes []*cluster.Node, pol scheduler.Policy) cluster.Reason {
	if snap.Limits == nil {
		return cluster.Reason{}
	}
	return snap.Limits.MayStart(cluster.HolderOf(j), scheduler.LeastMilli(nodes, j, pol))
}

// quotaRoom is when quotas are expected to let a job start; snap is of the whole
// cluster, since others count wherever they run.
func (c *Coordinator) quotaRoom(snap *cluster.Snapshot, j *cluster.Job, nodes []*cluster.Node, pol scheduler.Policy) (scheduler.Room, bool) {
	if snap.Limits == nil {
		return scheduler.Room{}, true
	}
	half := c.fsm.AccountPolicy().HalfLife
	return scheduler.LimitRoom(snap, j, scheduler.LeastMilli(nodes, j, pol), half, pol)
}

// fairShareOf is where a job stands by fair shares, nil where there are no
// accounts.
func (c *Coordinator) fairShareOf(j *cluster.Job) *apiv1.FairShare {
	if has, _ := c.fsm.HasAccounts(); !has {
		return nil
	}
	d, account, uid := c.fsm.Standing(cluster.TimeOf(c.cfg.Clock())), j.Spec.Account, j.Owner.UID
	v := &standingView{d: d, req: &apiv1.ListStandingRequest{Uids: []uint32{uint32(uid)}}, resp: &apiv1.ListStandingResponse{}}
	if account != "" {
		v.req.Accounts = []string{account}
	}
	v.rules()
	fair := v.use()
	out := &apiv1.FairShare{
		Account: account, Rank: uint32(fair.Place(cluster.Assoc{Account: account, UID: uid})), Of: uint32(fair.Of),
		WeightMilli: uint32(max(0, min(cluster.WholeGPU, c.policyOf(j).FairMilli))),
	}
	if out.Of > 0 {
		out.Factor = float64(out.Of-out.Rank+1) / float64(out.Of)
	}
	for _, a := range v.resp.Accounts {
		if a.Name == account {
			out.AccountShares, out.AccountUse = a.Use.SharesPart, a.Use.UsePart
		}
	}
	for _, m := range v.resp.Members {
		if m.Account == account {
			out.UserShares, out.UserUse = m.Use.SharesPart, m.Use.UsePart
		}
	}
	return out
}
