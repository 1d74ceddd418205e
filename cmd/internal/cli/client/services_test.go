package client

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-scheduler/berth/cmd/internal/cli/link"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// try makes the call, which fails, and says what it is.
func (m Method[Q, A]) try(ctx context.Context, on *wire.Conn) (method string, takes, gives protoreflect.FullName) {
	req, resp := empty[Q](), empty[A]()
	_, _ = m.On(ctx, on, req)
	return string(m), req.ProtoReflect().Descriptor().FullName(), resp.ProtoReflect().Descriptor().FullName()
}

// TestMethods: each asks a method that a service has, and takes and gives what
// that does; of the services here none lacks one.
func TestMethods(t *testing.T) {
	t.Parallel()
	var asked string
	// A real socket: bufconn's deadlines of the past may come after they were taken back.
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		asked, _ = grpc.MethodFromServerStream(s)
		return nil
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	c := &wire.Conn{Conn: link.Conn{Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", ln.Addr().String())
	}, Most: 1 << 20, Sent: func() {}, Unsent: func() {}}}
	defer c.Close()
	left := map[string]protoreflect.MethodDescriptor{} // of which nothing was asked
	for _, f := range []protoreflect.FileDescriptor{
		apirpc.File_berth_api_v1_job_service_proto, apirpc.File_berth_api_v1_cluster_service_proto, apirpc.File_berth_api_v1_account_service_proto,
		apirpc.File_berth_api_v1_history_service_proto, apirpc.File_berth_api_v1_model_service_proto, apirpc.File_berth_api_v1_notify_service_proto,
		apirpc.File_berth_api_v1_series_service_proto, apirpc.File_berth_api_v1_web_service_proto,
	} {
		s := f.Services().Get(0)
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			left[string(s.Name())+"/"+string(m.Name())] = m
		}
	}
	for _, ours := range []interface {
		try(ctx context.Context, on *wire.Conn) (method string, takes, gives protoreflect.FullName)
	}{
		SubmitJobs, GetJob, PageOfJobs, CancelJobs, ControlJobs, updateJob, ExplainJob, ReportRequests, ListForecasts,
		Predict, GetStatus, ListNodes, DrainNode, ResumeNode, DrainGPU, ResumeGPU, SetSharing, PowerNode, FenceNode,
		RemoveNode, SetDenied, CreateToken, ListPartitions, SetPartition, RemovePartition, ListReservations, setReservation,
		removeReservation, ListStanding, SetStanding, GetReport, ListModels, GetModel, PublishModel, RollbackModel, PinModel,
		ImportRuns, ListWebhooks, AddWebhook, RemoveWebhook, ListDeadNotices, GetSeries, CreateLink,
	} {
		method, takes, gives := ours.try(t.Context(), c)
		m := left[method]
		if m == nil || asked != usersAPI+method || takes != m.Input().FullName() || gives != m.Output().FullName() {
			t.Errorf("%s asks %s with %s for %s", method, asked, takes, gives)
		}
		delete(left, method)
	}
	for method, m := range left {
		if !m.IsStreamingServer() {
			t.Errorf("nothing asks %s", method)
		}
	}
	if usersAPI != "/"+string((&apiv1.Job{}).ProtoReflect().Descriptor().ParentFile().Package())+"." {
		t.Errorf("services are not in %s", usersAPI)
	}
}
