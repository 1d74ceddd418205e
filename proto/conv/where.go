package conv

import (
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

func whereFromLog(m *logv1.Where) (*cluster.Where, error) {
	return cluster.WhereOf(m.GetNodes(), m.GetExclude(), m.GetFeatures(), m.GetWhole(), m.GetReservation(), m.GetSwitches())
}

func whereToLog(w *cluster.Where) *logv1.Where {
	if w == nil {
		return nil
	}
	return &logv1.Where{Nodes: w.Nodes.String(), Exclude: w.Exclude.String(), Features: w.Features.String(), Whole: w.Whole, Reservation: w.Reservation, Switches: w.Switches.String()}
}

// ReservationToLog converts a reservation.
func ReservationToLog(r *dispatch.Reservation) *logv1.Reservation {
	return &logv1.Reservation{
		Name: r.Name, Revision: r.Revision, StartUs: int64(r.Start), DurationUs: r.Duration.Microseconds(), Repeat: string(r.Repeat),
		Nodes: r.Nodes.String(), Users: r.Users, Accounts: r.Accounts, Maint: r.Maint, Features: r.Features, Comment: r.Comment,
		Gpus: apiconv.Texts[string](r.GPUs),
	}
}

// ReservationFromLog converts back. A reservation that Reservation.Check refuses is
// an error.
func ReservationFromLog(m *logv1.Reservation) (*dispatch.Reservation, error) {
	nodes, err := cluster.ParseHostList(m.GetNodes())
	if err != nil {
		return nil, err
	}
	r := &dispatch.Reservation{
		Name: m.GetName(), Revision: m.GetRevision(), Start: cluster.Time(m.GetStartUs()), Duration: us(m.GetDurationUs()), Repeat: dispatch.Repeat(m.GetRepeat()),
		Nodes: nodes, Users: m.GetUsers(), Accounts: m.GetAccounts(), Maint: m.GetMaint(), Features: m.GetFeatures(), Comment: m.GetComment(),
		GPUs: apiconv.Texts[cluster.GPUID](m.GetGpus()),
	}
	return r, r.Check()
}

// ReservationToAPI converts a reservation for users, as of now; the caller adds its
// current use.
func ReservationToAPI(r *dispatch.Reservation, now cluster.Time) *apiv1.Reservation {
	start, end, ok := r.Window(now)
	return &apiv1.Reservation{
		Name: r.Name, Start: timestamppb.New(start.Std()), End: timestamppb.New(end.Std()), Repeat: string(r.Repeat), Nodes: r.Nodes.String(),
		Users: r.Users, Accounts: r.Accounts, Maint: r.Maint, Features: r.Features, Comment: r.Comment, Active: ok && start <= now,
	}
}

// storedFeatures converts stored features back.
func storedFeatures(node string, has []string) ([]string, error) {
	if err := cluster.CheckFeatures(has); err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	return has, nil
}
