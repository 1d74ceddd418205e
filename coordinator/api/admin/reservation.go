package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/coordinator/api/admission"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/resource"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/scheduler/site"
)

// ListReservations describes reservations by name: those whose windows are open or
// yet to open.
func (s *clusterServer) ListReservations(ctx context.Context, req *apiv1.ListReservationsRequest) (*apiv1.ListReservationsResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	resp := &apiv1.ListReservationsResponse{}
	now := s.c.nowTime()
	rs := s.c.fsm.Reservations()
	for _, name := range req.Names {
		if rs.Get(name) == nil {
			return nil, noReservation(name)
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

// nowTime returns the leader's clock, never behind the log.
func (c *Admin) nowTime() cluster.Time { return cluster.TimeOf(c.clock()) }

// reservationView returns a reservation with what is there of it now.
func (c *Admin) reservationView(r *dispatch.Reservation, now cluster.Time) *apiv1.Reservation {
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
	waiting, _ := c.fsm.Jobs(fsm.Query{States: []cluster.JobState{cluster.JobPending, cluster.JobQueued}, Keep: func(j *cluster.Job) bool { return j.Spec.Where.InReservation() == r.Name }})
	for _, j := range waiting {
		m.JobsWaiting += uint32(j.Count())
	}
	for _, j := range snap.Running {
		if j.Spec.Where.InReservation() == r.Name {
			m.JobsRunning++
		}
	}
	for _, j := range site.InTheWay(r, snap, now) {
		m.InTheWay = append(m.InTheWay, uint64(j.ID))
	}
	return m
}

// SetReservation adds a reservation, or changes what the request says of one.
func (s *clusterServer) SetReservation(ctx context.Context, req *apiv1.SetReservationRequest) (*apiv1.SetReservationResponse, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	var now cluster.Time
	var r *dispatch.Reservation
	var warnings []string
	if err := resource.Set(ctx, s.c.prop, func() (*logv1.Command, error) {
		now = s.c.nowTime()
		snap, _ := s.c.fsm.SchedulerSnapshotAt(now)
		old := snap.Reservations.Get(req.Name)
		switch {
		case old != nil && req.OnlyNew:
			return nil, cluster.Errorf(cluster.CodeAlreadyExists, "reservation %s already exists; change it with berth reservation set", req.Name)
		case old == nil && req.OnlyChange:
			return nil, noReservation(req.Name)
		}
		var err error
		if r, warnings, err = mergeReservation(old, req, snap); err != nil {
			return nil, err
		}
		cmd := &logv1.SetReservation{Reservation: conv.ReservationToLog(r)}
		if old != nil {
			cmd.Base = old.Revision
		}
		return &logv1.Command{Kind: &logv1.Command_SetReservation{SetReservation: cmd}}, nil
	}); err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "reservation set", "reservation", r.Name, "nodes", r.Nodes.String(), "start", r.Start.Std(), "maint", r.Maint, "uid", who.UID)
	return &apiv1.SetReservationResponse{Reservation: s.c.reservationView(r, now), Warnings: warnings}, nil
}

// mergeReservation returns a reservation as a request changes it; old is nil for a
// new one.
func mergeReservation(old *dispatch.Reservation, req *apiv1.SetReservationRequest, snap *dispatch.Snapshot) (*dispatch.Reservation, []string, error) {
	r := &dispatch.Reservation{Name: req.Name}
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
		r.Repeat = dispatch.Repeat(req.GetRepeat())
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
		return nil, nil, cluster.Errorf(cluster.CodeInvalid, "duration: the reservation would have ended already, at %s; give a later start or end", admission.ClockText(end))
	}
	return r, doubtsOf(r, snap), clashes(r, req, snap)
}

// whenReserved applies the times.
func whenReserved(r, old *dispatch.Reservation, req *apiv1.SetReservationRequest, now cluster.Time) error {
	switch {
	case req.Start != nil:
		r.Start = cluster.TimeOf(req.Start.AsTime())
	case old == nil:
		r.Start = now
	}
	switch {
	case req.End != nil && req.Duration != nil:
		return cluster.Errorf(cluster.CodeInvalid, "end and duration: give only one of them")
	case req.End != nil:
		if r.Duration = cluster.TimeOf(req.End.AsTime()).Sub(r.Start); r.Duration <= 0 {
			return cluster.Errorf(cluster.CodeInvalid, "end: %s is not after the start, %s", admission.ClockText(cluster.TimeOf(req.End.AsTime())), admission.ClockText(r.Start))
		}
	case req.Duration != nil:
		r.Duration = req.Duration.AsDuration()
	case old == nil:
		return cluster.Errorf(cluster.CodeInvalid, "duration: is missing; give it or the end")
	}
	return nil
}

// whatReserved applies the nodes, or chooses nodes or GPUs.
func whatReserved(r, old *dispatch.Reservation, req *apiv1.SetReservationRequest, snap *dispatch.Snapshot) error {
	ways := 0
	for _, given := range []bool{req.Nodes != nil, req.NodeCount > 0, req.GpuCount > 0} {
		if given {
			ways++
		}
	}
	var err error
	switch {
	case ways > 1:
		return cluster.Errorf(cluster.CodeInvalid, "nodes: give only one of a host list, a number of nodes and a number of GPUs")
	case req.Nodes != nil:
		r.GPUs, r.Features = nil, ""
		r.Nodes, err = cluster.ParseHostList(req.GetNodes())
		return err
	case ways == 0 && old == nil && req.Features != "":
		return site.ChooseNodes(r, wantOf(req), snap)
	case ways == 0 && old == nil:
		return cluster.Errorf(cluster.CodeInvalid, "nodes: are missing; give a host list such as gpu[01-04], %s, a number of nodes, or a number of GPUs", cluster.AllNodes)
	case ways == 0:
		return nil
	case req.GpuCount > 0:
		return site.ChooseGPUs(r, wantOf(req), snap)
	}
	return site.ChooseNodes(r, wantOf(req), snap)
}

// wantOf returns what a request leaves to be chosen.
func wantOf(req *apiv1.SetReservationRequest) *site.Want {
	return &site.Want{
		Nodes: int(req.NodeCount), GPUs: int(req.GpuCount), GPUType: req.GpuType, Features: req.Features, Partition: req.Partition, Overlap: req.Overlap,
	}
}

// clashes says which reservations, or running jobs, conflict with r.
func clashes(r *dispatch.Reservation, req *apiv1.SetReservationRequest, snap *dispatch.Snapshot) error {
	if !req.Overlap && !r.Maint {
		for _, o := range snap.Reservations {
			if o.Name == r.Name || o.Maint {
				continue
			}
			if at, ok := site.Overlap(r, o, snap); ok {
				return cluster.Errorf(cluster.CodeConflict, "reservation %s holds part of it from %s on (%s); choose other nodes or times, or allow an overlap", o.Name, admission.ClockText(at), o.Nodes)
			}
		}
	}
	if req.IgnoreJobs {
		return nil
	}
	if busy := site.InTheWay(r, snap, snap.Now); len(busy) > 0 {
		return cluster.Errorf(cluster.CodeConflict, "jobs there may still be running when it begins (%d: %s); wait for them or cancel them, begin later, or let them run on (--ignore-jobs)", len(busy), someJobs(busy))
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
		ids = append(ids, j.Label())
	}
	return strings.Join(ids, ", ")
}

// doubtsOf returns warnings about what may be intended or a mistake.
func doubtsOf(r *dispatch.Reservation, snap *dispatch.Snapshot) (out []string) {
	var unknown []string
	for _, id := range r.Nodes.Names() {
		if !slices.ContainsFunc(snap.Nodes, func(n *cluster.Node) bool { return n.ID == id }) {
			unknown = append(unknown, string(id))
		}
	}
	if len(unknown) > 0 {
		out = append(out, fmt.Sprintf("no such node yet: %s; it is reserved once it joins", strings.Join(unknown[:min(5, len(unknown))], ", ")))
	}
	if busy := site.InTheWay(r, snap, snap.Now); len(busy) > 0 {
		out = append(out, fmt.Sprintf("%d jobs run there and may continue into it: %s", len(busy), someJobs(busy)))
	}
	return out
}

// RemoveReservation forgets a reservation that no job asks for.
func (s *clusterServer) RemoveReservation(ctx context.Context, req *apiv1.RemoveReservationRequest) (*apiv1.RemoveReservationResponse, error) {
	who, _, err := s.c.order(ctx, &logv1.Command{Kind: &logv1.Command_RemoveReservation{RemoveReservation: &logv1.RemoveReservation{Name: req.Name}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "reservation removed", "reservation", req.Name, "uid", who.UID)
	return &apiv1.RemoveReservationResponse{}, nil
}

// tellReserved sets which reservation is open on all of a node, one for maintenance
// first.
func tellReserved(m *apiv1.Node, st *fsm.State, now cluster.Time) {
	for _, r := range st.Reservations() {
		if r.CoversNode(cluster.NodeID(m.Id)) && r.Active(now) && (m.Reservation == "" || r.Maint && !m.Maint) {
			m.Reservation, m.Maint = r.Name, r.Maint
		}
	}
}
