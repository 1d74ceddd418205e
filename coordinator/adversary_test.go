package coordinator_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/notify"
)

// mayCall says who may make each call there is: any user, a person and not a job of
// one, administrators alone, or daemons of a role. What users may do to what is whose
// (an account's coordinator to the account) is for other tests. A call that is not here
// fails the test.
var mayCall = map[string]string{
	"api.v1.JobService": "SubmitJobs:user GetJob:user ListJobs:user CancelJobs:user ControlJobs:user UpdateJob:user ExplainJob:user " +
		"ListForecasts:user Predict:user WatchJobs:user ReportRequests:user",
	"api.v1.ClusterService": "GetStatus:user ListNodes:user DrainNode:admin ResumeNode:admin DrainGPU:admin ResumeGPU:admin SetSharing:admin " +
		"FenceNode:admin PowerNode:admin RemoveNode:admin SetDenied:admin CreateToken:admin ListPartitions:user SetPartition:admin RemovePartition:admin " +
		"ListReservations:user SetReservation:admin RemoveReservation:admin",
	"api.v1.AccountService": "ListStanding:user SetStanding:user",
	"api.v1.ModelService":   "ListModels:user GetModel:user PublishModel:admin RollbackModel:admin PinModel:admin ImportRuns:admin",
	"api.v1.HistoryService": "ListHistory:user GetReport:user",
	"api.v1.NotifyService":  "ListWebhooks:user AddWebhook:admin RemoveWebhook:user ListDeadNotices:user",
	"api.v1.BackupService":  "SaveBackup:admin",
	"api.v1.AttachService":  "Attach:user",
	"api.v1.SeriesService":  "GetSeries:user",
	"api.v1.WebService":     "CreateLink:person",
	"node.v1.NodeService":   "Session:agent Join:anybody Renew:agent GetClock:agent",
	"node.v1.RelayService":  "Relay:agent",
	"peer.v1.PeerService":   "GetMember:coordinator ConfirmIndex:coordinator FetchHistory:coordinator",
}

// everyCall returns each call of each service of ours, by its full name, and who may
// make it.
func everyCall(t *testing.T) map[string]string {
	t.Helper()
	said := map[string]string{}
	for service, calls := range mayCall {
		for _, call := range strings.Fields(calls) {
			name, who, _ := strings.Cut(call, ":")
			said["/berth."+service+"/"+name] = who
		}
	}
	all := map[string]string{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			if !strings.HasPrefix(string(s.FullName()), "berth.") {
				continue
			}
			for k := range s.Methods().Len() {
				name := "/" + string(s.FullName()) + "/" + string(s.Methods().Get(k).Name())
				if all[name] = said[name]; all[name] == "" {
					t.Errorf("%s: nobody said who may call it", name)
				}
			}
		}
		return true
	})
	if len(all) != len(said) {
		t.Errorf("%d calls are there, of %d it is said who may make them", len(all), len(said))
	}
	return all
}

// turnedAway makes a call with an empty message, and reports whether it was refused
// for who made it.
func turnedAway(ctx context.Context, t *testing.T, cc *grpc.ClientConn, call string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, call)
	if err == nil {
		if err = s.SendMsg(&emptypb.Empty{}); err == nil || errors.Is(err, io.EOF) {
			_ = s.CloseSend()
			err = s.RecvMsg(&emptypb.Empty{})
		}
	}
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied || code == codes.Unimplemented
}

// TestWhoMayCall makes every call as everybody: with certificates of each role, for
// users whose jobs are on the node and for others, for administrators, with headers
// that only coordinators may send.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, AllowRoot: true, Notices: notify.Notices{Webhooks: notify.WebhooksAdmins}, Waits: coordinator.Waits{JobUser: time.Millisecond}})
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"), coordtest.T4("GPU-2"))
	gate := c.Dial(0, "gate", "g")
	runningJob(t, gate, a, 1) // alice's
	c.Agent(0, "n2", "b1", coordtest.T4("GPU-3"), coordtest.T4("GPU-4"))
	if _, err := submit(t, gate, admin, reqID(2), spec(0)); err != nil { // runs on either
		t.Fatal(err)
	}
	with := func(pairs ...string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return metadata.AppendToOutgoingContext(ctx, pairs...) }
	}
	for_ := func(uid uint32, more ...string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return with(more...)(coordtest.As(ctx, uid)) }
	}
	const nobody = 54321
	callers := []struct {
		name string
		cc   *grpc.ClientConn
		as   func(context.Context) context.Context
		may  string // kinds of calls
	}{
		{"no certificate", c.Stranger(0), for_(alice), "anybody"},
		{"a role that there is not", c.Dial(0, "spy", "x"), for_(alice), "anybody"},
		{"a gate for nobody", gate, with(), "anybody"},
		{"a gate for a user", gate, for_(alice), "user person anybody"},
		{"a gate for an administrator", gate, for_(admin), "user person admin anybody"},
		{"a gate for root", gate, for_(0), "anybody"},
		{"a gate for a system account", gate, for_(33), "anybody"},
		{"a gate that forwards", gate, for_(alice, "berth-forwarded", "c1"), "user person anybody"},
		{"a node for nobody", c.Dial(0, "agent", "n1"), with(), "agent anybody"},
		{"a node for a user with a job there", c.Dial(0, "agent", "n1"), for_(alice), "user agent anybody"},
		{"a node for a user without one", c.Dial(0, "agent", "n1"), for_(nobody), "agent anybody"},
		{"a node for root", c.Dial(0, "agent", "n1"), for_(0), "agent anybody"},
		{"a node that forwards for a user without one", c.Dial(0, "agent", "n1"), for_(nobody, "berth-forwarded", "c1"), "agent anybody"},
		{"another node for her", c.Dial(0, "agent", "n3"), for_(alice), "agent anybody"},
		{"a coordinator for a user", c.Dial(0, "coordinator", "c2"), for_(alice), "user person coordinator anybody"},
		{"a coordinator for an administrator", c.Dial(0, "coordinator", "c2"), for_(admin), "user person admin coordinator anybody"},
		{"a coordinator for an administrator on a node", c.Dial(0, "coordinator", "c2"), for_(admin, "berth-plain", "1"), "user coordinator anybody"},
		{"a local user who says to be another", c.Client(0), for_(admin), ""},
		{"a local user who says to forward", c.Client(0), for_(alice, "berth-forwarded", "c1"), ""},
	}
	for _, node := range []string{"n1", "n2"} { // an administrator's job is on one of them
		callers = append(callers, callers[len(callers)-1])
		callers[len(callers)-1].name, callers[len(callers)-1].cc = "node "+node+" for an administrator", c.Dial(0, "agent", node)
		callers[len(callers)-1].as, callers[len(callers)-1].may = for_(admin), "agent anybody user?"
	}
	calls := everyCall(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, x := range callers {
		wg.Go(func() { // some wait a little for a job to be known
			for call, who := range calls {
				may := slices.Contains(strings.Fields(x.may), who)
				if away := turnedAway(x.as(t.Context()), t, x.cc, call); away == may && !strings.Contains(x.may, who+"?") {
					t.Errorf("%s, by %s: turned away %t, want %t", call, x.name, away, !may)
				}
			}
		})
	}
}
