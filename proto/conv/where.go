package conv

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// WhereOf reads where a job may run; nil is anywhere. The error is a
// *cluster.Error of CodeInvalid that names the field.
func WhereOf(nodes, exclude, features string, whole bool, reservation string) (*cluster.Where, error) {
	w := &cluster.Where{Whole: whole, Reservation: reservation}
	var err error
	if nodes != "" {
		if w.Nodes, err = cluster.ParseHostList(nodes); err != nil {
			return nil, cluster.Errorf(cluster.CodeInvalid, "nodelist: %v", err)
		}
	}
	if exclude != "" {
		if w.Exclude, err = cluster.ParseHostList(exclude); err != nil {
			return nil, cluster.Errorf(cluster.CodeInvalid, "exclude: %v", err)
		}
	}
	if w.Features, err = cluster.ParseFeatures(features); err != nil {
		return nil, err
	}
	if nodes == "" && exclude == "" && features == "" && !whole && reservation == "" {
		return nil, nil
	}
	return w, nil
}

func whereFromAPI(m *apiv1.Where) (*cluster.Where, error) {
	return WhereOf(m.GetNodes(), m.GetExclude(), m.GetFeatures(), m.GetWhole(), m.GetReservation())
}

func whereToAPI(w *cluster.Where) *apiv1.Where {
	if w == nil {
		return nil
	}
	return &apiv1.Where{Nodes: w.Nodes.String(), Exclude: w.Exclude.String(), Features: w.Features.String(), Whole: w.Whole, Reservation: w.Reservation}
}

func whereFromLog(m *logv1.Where) (*cluster.Where, error) {
	return WhereOf(m.GetNodes(), m.GetExclude(), m.GetFeatures(), m.GetWhole(), m.GetReservation())
}

func whereToLog(w *cluster.Where) *logv1.Where {
	if w == nil {
		return nil
	}
	return &logv1.Where{Nodes: w.Nodes.String(), Exclude: w.Exclude.String(), Features: w.Features.String(), Whole: w.Whole, Reservation: w.Reservation}
}

// ReservationToLog converts a reservation.
func ReservationToLog(r *cluster.Reservation) *logv1.Reservation {
	m := &logv1.Reservation{
		Name: r.Name, Revision: r.Revision, StartUs: int64(r.Start), DurationUs: r.Duration.Microseconds(), Repeat: string(r.Repeat),
		Nodes: r.Nodes.String(), Users: r.Users, Accounts: r.Accounts, Maint: r.Maint, Features: r.Features, Comment: r.Comment,
	}
	for _, g := range r.GPUs {
		m.Gpus = append(m.Gpus, string(g))
	}
	return m
}

// ReservationFromLog converts back. One that Reservation.Check refuses is an
// error.
func ReservationFromLog(m *logv1.Reservation) (*cluster.Reservation, error) {
	nodes, err := cluster.ParseHostList(m.GetNodes())
	if err != nil {
		return nil, err
	}
	r := &cluster.Reservation{
		Name: m.GetName(), Revision: m.GetRevision(), Start: cluster.Time(m.GetStartUs()), Duration: us(m.GetDurationUs()), Repeat: cluster.Repeat(m.GetRepeat()),
		Nodes: nodes, Users: m.GetUsers(), Accounts: m.GetAccounts(), Maint: m.GetMaint(), Features: m.GetFeatures(), Comment: m.GetComment(),
	}
	for _, g := range m.GetGpus() {
		r.GPUs = append(r.GPUs, cluster.GPUID(g))
	}
	return r, r.Check()
}

// ReservationToAPI converts a reservation for users, as of a time; what of it is
// there now is the caller's to add.
func ReservationToAPI(r *cluster.Reservation, now cluster.Time) *apiv1.Reservation {
	start, end, ok := r.Window(now)
	return &apiv1.Reservation{
		Name: r.Name, Start: timestamppb.New(start.Std()), End: timestamppb.New(end.Std()), Repeat: string(r.Repeat), Nodes: r.Nodes.String(),
		Users: r.Users, Accounts: r.Accounts, Maint: r.Maint, Features: r.Features, Comment: r.Comment, Active: ok && start <= now,
	}
}

// features takes over what an agent says that its node has.
func features(node string, has []string) ([]string, error) {
	out := slices.Compact(slices.Sorted(slices.Values(has)))
	if err := cluster.CheckFeatures(out); err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: %v", node, err)
	}
	return out, nil
}

// storedFeatures reads back what was stored of them.
func storedFeatures(node string, has []string) ([]string, error) {
	if err := cluster.CheckFeatures(has); err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	return has, nil
}
