package admin_test

import (
	"context"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// reserved is a server with a reservation that a job and a task of an array stand in
// the way of.
type reserved struct{ *clitest.Fake }

func (reserved) ListReservations(context.Context, *apiv1.ListReservationsRequest) (*apiv1.ListReservationsResponse, error) {
	return &apiv1.ListReservationsResponse{Reservations: []*apiv1.Reservation{{
		Name: "maint", Nodes: "n1", Start: clitest.Ago(0), End: clitest.Ago(-1), InTheWay: []uint64{12, 103},
	}}}, nil
}

// TestReservationNamesTasks: what is in the way of a reservation is named as other
// lists name it.
func TestReservationNamesTasks(t *testing.T) {
	t.Parallel()
	task := uint32(3)
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = []*apiv1.Job{{Id: 12, Spec: &apiv1.JobSpec{}}, {Id: 103, ArrayJobId: 100, ArrayTaskId: &task, Spec: &apiv1.JobSpec{}}}
	w.ServeWith("/a", f, reserved{f})
	if code := w.Run("reservation", "show", "maint"); code != 0 || !strings.Contains(w.Out.String(), "12, 100_3\n") {
		t.Errorf("exit code %d, said %q, printed\n%s", code, w.Errs.String(), w.Out.String())
	}
}
