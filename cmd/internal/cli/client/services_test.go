package client

import (
	"context"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/berth-scheduler/berth/cmd/internal/cli/link"
	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// TestServices: each method asks what it is called, of the service that it is of,
// and takes and gives what the service does; of the services here none lacks one.
func TestServices(t *testing.T) {
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
	described := map[string]protoreflect.ServiceDescriptor{}
	for _, f := range []protoreflect.FileDescriptor{
		apirpc.File_berth_api_v1_job_service_proto, apirpc.File_berth_api_v1_cluster_service_proto, apirpc.File_berth_api_v1_account_service_proto,
		apirpc.File_berth_api_v1_history_service_proto, apirpc.File_berth_api_v1_model_service_proto, apirpc.File_berth_api_v1_notify_service_proto,
		apirpc.File_berth_api_v1_series_service_proto, apirpc.File_berth_api_v1_web_service_proto,
	} {
		s := f.Services().Get(0)
		described[string(s.Name())] = s
	}
	for _, ours := range []any{JobService{c}, ClusterService{c}, AccountService{c}, HistoryService{c}, ModelService{c}, NotifyService{c}, SeriesService{c}, WebService{c}} {
		v := reflect.ValueOf(ours)
		desc := described[v.Type().Name()]
		if desc == nil || desc.Methods().Len() != v.NumMethod() {
			t.Errorf("%s has %d methods, or there is none of that name", v.Type().Name(), v.NumMethod())
			continue
		}
		for i := range v.NumMethod() {
			m := desc.Methods().ByName(protoreflect.Name(v.Type().Method(i).Name))
			if m == nil {
				t.Errorf("%s has no %s", desc.Name(), v.Type().Method(i).Name)
				continue
			}
			in := reflect.New(v.Method(i).Type().In(1).Elem())
			out := v.Method(i).Call([]reflect.Value{reflect.ValueOf(t.Context()), in})[0]
			if m.IsStreamingServer() { // what it is was asked once something came of it
				recv := out.MethodByName("Recv")
				out = recv.Call(nil)[0]
			}
			gives := reflect.New(out.Type().Elem()).Interface().(proto.Message).ProtoReflect().Descriptor().FullName()
			takes := in.Interface().(proto.Message).ProtoReflect().Descriptor().FullName()
			if want := "/" + strings.Replace(string(m.FullName()), "."+string(m.Name()), "/"+string(m.Name()), 1); asked != want || takes != m.Input().FullName() || gives != m.Output().FullName() {
				t.Errorf("%s asks %s with %s for %s", m.FullName(), asked, takes, gives)
			}
		}
	}
	if usersAPI != "/"+string((&apiv1.Job{}).ProtoReflect().Descriptor().ParentFile().Package())+"." {
		t.Errorf("services are not in %s", usersAPI)
	}
}
