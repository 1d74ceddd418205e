package admin_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
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
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = []*apiv1.Job{{Id: 12, Spec: &apiv1.JobSpec{}}, {Id: 103, ArrayJobId: 100, ArrayTaskId: new(uint32(3)), Spec: &apiv1.JobSpec{}}}
	w.ServeWith("/a", f, reserved{f})
	if code := w.Run("reservation", "show", "maint"); code != 0 || !strings.Contains(w.Out.String(), "12, 100_3\n") {
		t.Errorf("exit code %d, said %q, printed\n%s", code, w.Errs.String(), w.Out.String())
	}
}

// quotas is a server with one quota, which records what is set and removed.
type quotas struct {
	*clitest.Fake
	set []*apiv1.SetStandingRequest
}

func (*quotas) ListStanding(context.Context, *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	return &apiv1.ListStandingResponse{Quotas: []*apiv1.Quota{{Account: "bio", Each: true, Revision: 7, Limits: &apiv1.Limits{GpuMilli: 2000, Jobs: 5}}}}, nil
}

func (q *quotas) SetStanding(_ context.Context, r *apiv1.SetStandingRequest) (*apiv1.SetStandingResponse, error) {
	q.set = append(q.set, r)
	return &apiv1.SetStandingResponse{}, nil
}

// TestQuotaRemove: a quota goes with all its limits, whoever has none is told so.
func TestQuotaRemove(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--account bio --each-user": "quota of account bio, each user: none\n",
		"--account bio":             "there is no quota of account bio; see: berth quota list",
		"":                          "whose quota? give --account, --qos, --user or --each-user",
	} {
		w, q := clitest.NewWorld(t), &quotas{Fake: clitest.NewFake()}
		w.ServeGRPC("/a", func(s *grpc.Server) { apirpc.RegisterAccountServiceServer(s, q) })
		got := w.Transcript(append([]string{"quota", "remove"}, strings.Fields(args)...)...)
		removed := len(q.set) == 1 && q.set[0].GetRemove() && q.set[0].GetStanding().GetRevision() == 7
		if !strings.Contains(got, want) || removed != strings.HasSuffix(want, "none\n") || !removed && len(q.set) > 0 {
			t.Errorf("%q: set %v\n%s", args, q.set, got)
		}
	}
}

// TestDrainNamesReplicas: whoever drains a node is told which of its jobs never end by
// themselves, and how to move them.
func TestDrainNamesReplicas(t *testing.T) {
	t.Parallel()
	task := uint32(2)
	w, f := clitest.NewWorld(t), clitest.NewFake()
	f.Jobs = []*apiv1.Job{
		{Id: 12, ArrayJobId: 10, ArrayTaskId: &task, State: "RUNNING", Node: "n1", Replica: &apiv1.Replica{Service: "chat", Want: 1, Most: 1}},
		{Id: 21, ArrayJobId: 20, ArrayTaskId: new(uint32(1)), State: "RUNNING", Node: "n1", Replica: &apiv1.Replica{Service: "embed", Want: 1, Most: 2}},
		{Id: 13, State: "RUNNING", Node: "n1"},
	}
	w.Serve("/a", f)
	got := w.Transcript("node", "drain", "n1", "--reason", "new fans")
	for _, want := range []string{"1 replica of services there will start on other nodes one by one, once those have room: 20_1\n", "run until somebody ends them; berth requeue 10_2 starts them on other nodes"} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
}
