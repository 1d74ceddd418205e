package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// ListReservations describes reservations by name: those whose windows are to
// come or open.
func (s *clusterServer) ListReservations(ctx context.Context, req *apiv1.ListReservationsRequest) (*apiv1.ListReservationsResponse, error) {
	if err := s.c.current(ctx); err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	resp := &apiv1.ListReservationsResponse{}
	now := s.c.nowTime()
	rs := s.c.fsm.Reservations()
	for _, name := range req.Names {
		if rs.Get(name) == nil {
			return nil, toStatus(ctx, s.c.log, noReservation(name))
		}
	}
	for _, r := range rs {
		if _, _, ok := r.Window(now); ok && (len(req.Names) == 0 || slices.Contains(req.Names, r.Name)) {
			resp.Reservations = append(resp.Reservations, s.c.reservationView(r, now))
		}
	}
	return resp, nil
}

func noReservation(name string) error {
	return cluster.Errorf(cluster.CodeNotFound, "reservation %q is not known; see: berth reservation list", name)
}

// nowTime is the leader's clock, never behind the log.
func (c *Coordinator) nowTime() cluster.Time { return cluster.TimeOf(c.cfg.Clock()) }

// reservationView is a reservation with what of it is there now.
func (c *Coordinator) reservationView(r *cluster.Reservation, now cluster.Time) *apiv1.Reservation {
	m := conv.ReservationToAPI(r, now)
	snap, _ := c.fsm.SchedulerSnapshotAt(now)
	for _, n := range snap.Nodes {
		if !r.Nodes.Holds(n.ID) {
			continue
		}
		m.NodeCount++
		if r.CoversNode(n.ID) {
			m.CpuMilli += n.CPUMilli
		}
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !r.Covers(n.ID, g.ID) {
				continue
			}
			m.GpuCount++
			if len(r.GPUs) > 0 {
				m.Gpus = append(m.Gpus, &apiv1.ReservedGPU{Uuid: string(g.ID), Node: string(n.ID), Index: uint32(g.Index), Type: g.Type})
			}
		}
	}
	for _, j := range snap.Waiting {
		if j.Spec.Where.InReservation() == r.Name {
			m.JobsWaiting++
		}
	}
	for _, j := range snap.Running {
		if j.Spec.Where.InReservation() == r.Name {
			m.JobsRunning++
		}
	}
	for _, j := range inTheWay(r, snap, now) {
		m.InTheWay = append(m.InTheWay, uint64(j.ID))
	}
	return m
}

// inTheWay are the jobs of others that run on what a reservation holds and may
// not have ended when its window begins.
func inTheWay(r *cluster.Reservation, snap *cluster.Snapshot, now cluster.Time) (out []*cluster.Job) {
	start, _, ok := r.Window(now)
	if !ok {
		return nil
	}
	for _, j := range snap.Running {
		a := j.Live()
		if a == nil || j.Spec.Where.InReservation() == r.Name {
			continue
		}
		began := max(a.Started, a.Placed)
		if began == 0 {
			began = now
		}
		if j.LatestEnd(began) <= start {
			continue
		}
		for _, b := range a.Held() {
			if _, on := r.BarsBerth(j, b, now, start+1); on {
				out = append(out, j)
				break
			}
		}
	}
	return out
}

// SetReservation adds a reservation, or changes what the request says of one.
func (s *clusterServer) SetReservation(ctx context.Context, req *apiv1.SetReservationRequest) (*apiv1.SetReservationResponse, error) {
	resp, err := s.setReservation(ctx, req)
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	return resp, nil
}

func (s *clusterServer) setReservation(ctx context.Context, req *apiv1.SetReservationRequest) (*apiv1.SetReservationResponse, error) {
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		now := s.c.nowTime()
		snap, _ := s.c.fsm.SchedulerSnapshotAt(now)
		old := snap.Reservations.Get(req.Name)
		switch {
		case old != nil && req.OnlyNew:
			return nil, cluster.Errorf(cluster.CodeAlreadyExists, "reservation %s is there already; change it with berth reservation set", req.Name)
		case old == nil && req.OnlyChange:
			return nil, noReservation(req.Name)
		}
		r, warnings, err := mergeReservation(old, req, snap)
		if err != nil {
			return nil, err
		}
		cmd := &logv1.SetReservation{Reservation: conv.ReservationToLog(r)}
		if old != nil {
			cmd.Base = old.Revision
		}
		_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_SetReservation{SetReservation: cmd}})
		if e, ok := errors.AsType[*cluster.Error](err); ok && e.Code == cluster.CodeConflict && try < setTries {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.c.log.InfoContext(ctx, "reservation set", "reservation", r.Name, "nodes", r.Nodes.String(), "start", r.Start.Std(), "maint", r.Maint, "uid", who.uid)
		return &apiv1.SetReservationResponse{Reservation: s.c.reservationView(r, now), Warnings: warnings}, nil
	}
}

// mergeReservation is a reservation as a request changes it; old is nil for a new one.
func mergeReservation(old *cluster.Reservation, req *apiv1.SetReservationRequest, snap *cluster.Snapshot) (*cluster.Reservation, []string, error) {
	r := &cluster.Reservation{Name: req.Name}
	if old != nil {
		*r = *old
	}
	if err := cluster.CheckReservationName(r.Name); err != nil {
		return nil, nil, err
	}
	if err := whenReserved(r, old, req, snap.Now); err != nil {
		return nil, nil, err
	}
	if req.Repeat != nil {
		r.Repeat = cluster.Repeat(req.GetRepeat())
	}
	if req.Maint != nil {
		r.Maint = req.GetMaint()
	}
	if req.Comment != nil {
		r.Comment = req.GetComment()
	}
	if req.SetUsers {
		r.Users = slices.Compact(slices.Sorted(slices.Values(req.Users)))
	}
	if req.SetAccounts {
		r.Accounts = slices.Compact(slices.Sorted(slices.Values(req.Accounts)))
	}
	if err := whatReserved(r, old, req, snap); err != nil {
		return nil, nil, err
	}
	if err := r.Check(); err != nil {
		return nil, nil, err
	}
	if _, end, ok := r.Window(snap.Now); !ok {
		return nil, nil, cluster.Errorf(cluster.CodeInvalid, "duration: the reservation would have ended already, at %s; give a later start or end", clockText(end))
	}
	return r, doubtsOf(r, snap), clashes(r, req, snap)
}

// whenReserved takes over the times.
func whenReserved(r, old *cluster.Reservation, req *apiv1.SetReservationRequest, now cluster.Time) error {
	switch {
	case req.Start != nil:
		r.Start = cluster.TimeOf(req.Start.AsTime())
	case old == nil:
		r.Start = now
	}
	switch {
	case req.End != nil && req.Duration != nil:
		return cluster.Errorf(cluster.CodeInvalid, "end and duration: give one of them")
	case req.End != nil:
		if r.Duration = cluster.TimeOf(req.End.AsTime()).Sub(r.Start); r.Duration <= 0 {
			return cluster.Errorf(cluster.CodeInvalid, "end: %s is not after the start, %s", clockText(cluster.TimeOf(req.End.AsTime())), clockText(r.Start))
		}
	case req.Duration != nil:
		r.Duration = req.Duration.AsDuration()
	case old == nil:
		return cluster.Errorf(cluster.CodeInvalid, "duration: is missing; say how long it is to last, or its end")
	}
	return nil
}

// whatReserved takes over the nodes, or chooses nodes or cards.
func whatReserved(r, old *cluster.Reservation, req *apiv1.SetReservationRequest, snap *cluster.Snapshot) error {
	ways := 0
	for _, given := range []bool{req.Nodes != nil, req.NodeCount > 0, req.GpuCount > 0} {
		if given {
			ways++
		}
	}
	var err error
	switch {
	case ways > 1:
		return cluster.Errorf(cluster.CodeInvalid, "nodes: give a host list, a number of nodes, or a number of GPUs, and only one of them")
	case req.Nodes != nil:
		r.GPUs, r.Features = nil, ""
		r.Nodes, err = cluster.ParseHostList(req.GetNodes())
		return err
	case ways == 0 && old == nil && req.Features != "":
		return chooseNodes(r, req, snap)
	case ways == 0 && old == nil:
		return cluster.Errorf(cluster.CodeInvalid, "nodes: are missing; give a host list such as gpu[01-04], %s, a number of nodes, or a number of GPUs", cluster.AllNodes)
	case ways == 0:
		return nil
	case req.GpuCount > 0:
		return chooseGPUs(r, req, snap)
	}
	return chooseNodes(r, req, snap)
}

func clockText(t cluster.Time) string { return t.Std().UTC().Format("2006-01-02 15:04:05 MST") }

// clashes tells which reservations, or running jobs, stand in the way of r.
func clashes(r *cluster.Reservation, req *apiv1.SetReservationRequest, snap *cluster.Snapshot) error {
	if !req.Overlap && !r.Maint {
		for _, o := range snap.Reservations {
			if o.Name == r.Name || o.Maint {
				continue
			}
			if at, ok := overlap(r, o, snap); ok {
				return cluster.Errorf(cluster.CodeConflict, "reservation %s holds some of it from %s on (%s); choose other nodes or times, or ask for an overlap", o.Name, clockText(at), o.Nodes)
			}
		}
	}
	if req.IgnoreJobs {
		return nil
	}
	if busy := inTheWay(r, snap, snap.Now); len(busy) > 0 {
		return cluster.Errorf(cluster.CodeConflict, "%d jobs run there and may not have ended when it begins: %s; wait for them or end them, begin later, or let them be (ignore jobs)", len(busy), someJobs(busy))
	}
	return nil
}

func someJobs(jobs []*cluster.Job) string {
	const most = 10
	var ids []string
	for i, j := range jobs {
		if i == most {
			ids = append(ids, "…")
			break
		}
		ids = append(ids, j.ID.String())
	}
	return strings.Join(ids, ", ")
}

// overlap tells whether two reservations hold the same at the same time, within
// the next weeks for those that repeat, and from when on.
func overlap(a, b *cluster.Reservation, snap *cluster.Snapshot) (cluster.Time, bool) {
	shares := slices.ContainsFunc(snap.Nodes, func(n *cluster.Node) bool {
		return a.Nodes.Holds(n.ID) && b.Nodes.Holds(n.ID) && (len(n.GPUs) == 0 && a.CoversNode(n.ID) && b.CoversNode(n.ID) ||
			slices.ContainsFunc(n.GPUs, func(g cluster.GPU) bool { return a.Covers(n.ID, g.ID) && b.Covers(n.ID, g.ID) }))
	})
	if !shares {
		return 0, false
	}
	// Windows of weeks and days meet within a week and a day, or never.
	at := snap.Now
	const mostWindows = 64
	for range mostWindows {
		as, ae, ok1 := a.Window(at)
		bs, be, ok2 := b.Window(at)
		switch {
		case !ok1 || !ok2:
			return 0, false
		case as < be && bs < ae:
			return max(as, bs), true
		}
		at = min(ae, be)
	}
	return 0, false
}

// doubtsOf are what may be meant and may be a slip.
func doubtsOf(r *cluster.Reservation, snap *cluster.Snapshot) (out []string) {
	var unknown []string
	for _, id := range r.Nodes.Names() {
		if !slices.ContainsFunc(snap.Nodes, func(n *cluster.Node) bool { return n.ID == id }) {
			unknown = append(unknown, string(id))
		}
	}
	if len(unknown) > 0 {
		out = append(out, fmt.Sprintf("no such node yet: %s; it is reserved once it joins", strings.Join(unknown[:min(5, len(unknown))], ", ")))
	}
	if busy := inTheWay(r, snap, snap.Now); len(busy) > 0 {
		out = append(out, fmt.Sprintf("%d jobs run there and may go on into it: %s", len(busy), someJobs(busy)))
	}
	return out
}

// RemoveReservation forgets a reservation that no job asks for.
func (s *clusterServer) RemoveReservation(ctx context.Context, req *apiv1.RemoveReservationRequest) (*apiv1.RemoveReservationResponse, error) {
	who := callerOf(ctx)
	if err := s.c.authorize(who, actAdmin, nil); err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	_, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RemoveReservation{RemoveReservation: &logv1.RemoveReservation{Name: req.Name}}})
	if err != nil {
		return nil, toStatus(ctx, s.c.log, err)
	}
	s.c.log.InfoContext(ctx, "reservation removed", "reservation", req.Name, "uid", who.uid)
	return &apiv1.RemoveReservationResponse{}, nil
}

// tellReserved says of a node which reservation is open on all of it, one for
// maintenance first.
func tellReserved(m *apiv1.Node, st *fsm.State, now cluster.Time) {
	for _, r := range st.Reservations() {
		if r.CoversNode(cluster.NodeID(m.Id)) && r.Active(now) && (m.Reservation == "" || r.Maint && !m.Maint) {
			m.Reservation, m.Maint = r.Name, r.Maint
		}
	}
}
