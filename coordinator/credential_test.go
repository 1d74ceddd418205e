package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// reqs numbers requests.
var reqs atomic.Int64

// credited runs a job of a user on the node of an agent that hands out
// credentials. The first jobs of a cluster have none, until its coordinators have
// found that all of them know what that is.
func credited(t *testing.T, cc *grpc.ClientConn, a *coordtest.Agent, node string, uid uint32) *nodev1.Assignment {
	t.Helper()
	for {
		a.Hello(node, "b1", coordtest.T4("GPU-"+node))
		s := spec(0)
		s.Node = node
		ids := submitted(t, cc, uid, reqID(int(reqs.Add(1))), s)
		as := assigned(t, a, ids[0])
		a.Report(as, running, 0)
		if as.Credential != "" {
			await(t, cc, as.Job, "RUNNING")
			return as
		}
		a.Report(as, completed, 0)
		await(t, cc, as.Job, "COMPLETED")
	}
}

// tries are the calls of users that reach beyond a node, or show more than
// everybody sees, with what of theirs they are about.
func tries(cc *grpc.ClientConn, id uint64) map[string]func(context.Context) error {
	jobs := apirpc.NewJobServiceClient(cc)
	return map[string]func(context.Context) error{
		"submit": func(ctx context.Context) error {
			held := spec(0)
			held.Hold = true
			_, err := jobs.SubmitJobs(ctx, &apiv1.SubmitJobsRequest{RequestId: reqID(int(reqs.Add(1))), Jobs: []*apiv1.JobSpec{held}})
			return err
		},
		"update": func(ctx context.Context) error {
			name := "renamed"
			_, err := jobs.UpdateJob(ctx, &apiv1.UpdateJobRequest{Id: id, Name: &name})
			return err
		},
		"logs": func(ctx context.Context) error {
			s, err := apirpc.NewAttachServiceClient(cc).Attach(ctx)
			if err == nil {
				_ = s.Send(&apiv1.AttachRequest{Kind: &apiv1.AttachRequest_Open{Open: &apiv1.AttachOpen{Job: id, What: &apiv1.AttachOpen_Logs{Logs: &apiv1.AttachLogs{}}}}})
				_, err = s.Recv()
			}
			return err
		},
		"remove webhook": func(ctx context.Context) error {
			_, err := apirpc.NewNotifyServiceClient(cc).RemoveWebhook(ctx, &apiv1.RemoveWebhookRequest{Id: 9})
			return err
		},
	}
}

// TestNodesShowTheCredentialOfAJob: what an agent asks for a user is done if it
// shows the credential of a live attempt of that user, made for its node, and no
// other; without it no more is shown than everybody sees. It is the same by way of
// a coordinator that does not lead.
func TestNodesShowTheCredentialOfAJob(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Credentials: true, Waits: coordinator.Waits{JobUser: time.Millisecond}})
	l := c.Leader()
	gate := c.Dial(l, "gate", "g")
	a1, a2 := c.Agent(l, "n1", "b1", coordtest.T4("GPU-n1")), c.Agent(l, "n2", "b1", coordtest.T4("GPU-n2"))
	hers, ended, theirs, elsewhere := credited(t, gate, a1, "n1", alice), credited(t, gate, a1, "n1", alice), credited(t, gate, a1, "n1", bob), credited(t, gate, a2, "n2", alice)
	a1.Report(ended, completed, 0)
	await(t, gate, ended.Job, "COMPLETED")
	held := spec(0)
	held.Hold, held.Env = true, [][]byte{[]byte("TOKEN=s3cret")}
	about := submitted(t, gate, alice, reqID(int(reqs.Add(1))), held)
	for i := range 3 {
		// It answers as soon as it is as far as the leader.
		s, err := apirpc.NewHistoryServiceClient(c.Dial(i, "gate", "g")).ListHistory(as(t, alice), &apiv1.ListHistoryRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		node := c.Dial(i, "agent", "n1")
		for name, shows := range map[string][]string{
			"nothing": nil, "nothing in it": {""}, "no credential": {"let me in"}, "a part of it": {hers.Credential[:len(hers.Credential)-2]}, "it twice": {hers.Credential, hers.Credential},
			"that of an attempt that ended": {ended.Credential}, "another user's": {theirs.Credential}, "that of another node": {elsewhere.Credential},
			"that of an attempt there is not": {strings.Replace(hers.Credential, "-a1.", "-a2.", 1)},
		} {
			ctx := showing(as(t, alice), shows...)
			for call, try := range tries(node, about[0]) {
				if err := try(ctx); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "$BERTH_CREDENTIAL") {
					t.Errorf("%s, shown %s to c%d: %v", call, name, i+1, err)
				}
			}
			jobs, err := apirpc.NewJobServiceClient(node).ListJobs(ctx, &apiv1.ListJobsRequest{})
			if err != nil || len(jobs.Jobs) == 0 {
				t.Errorf("a list, shown %s to c%d: %v", name, i+1, err)
			}
			if j, err := apirpc.NewJobServiceClient(node).GetJob(ctx, &apiv1.GetJobRequest{Id: about[0]}); err != nil || len(j.Job.GetSpec().GetEnv()) > 0 || len(j.Job.GetSpec().GetCommand()) > 0 {
				t.Errorf("the job, shown %s to c%d: %v, %v", name, i+1, j.GetJob().GetSpec(), err)
			}
		}
		ctx := showing(as(t, alice), hers.Credential)
		for call, try := range tries(node, about[0]) {
			if err := try(ctx); status.Code(err) == codes.PermissionDenied {
				t.Errorf("%s, with her credential at c%d: %v", call, i+1, err)
			}
		}
		if j, err := apirpc.NewJobServiceClient(node).GetJob(ctx, &apiv1.GetJobRequest{Id: about[0]}); err != nil || len(j.Job.GetSpec().GetEnv()) == 0 {
			t.Errorf("the job, with her credential at c%d: %v, %v", i+1, j.GetJob().GetSpec(), err)
		}
		if err := tries(node, about[0])["submit"](showing(as(t, bob), hers.Credential)); status.Code(err) != codes.PermissionDenied {
			t.Errorf("for bob, with alice's credential at c%d: %v", i+1, err)
		}
		if err := tries(c.Dial(i, "agent", "n3"), about[0])["submit"](ctx); status.Code(err) != codes.PermissionDenied {
			t.Errorf("on a node without a job of hers, at c%d: %v", i+1, err)
		}
	}
}

// TestNobodyIsFreedOfTheCredential: the headers of coordinators do not help a node,
// and a coordinator hears from another that none was shown.
func TestNobodyIsFreedOfTheCredential(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Credentials: true, Waits: coordinator.Waits{JobUser: time.Millisecond}})
	gate := c.Dial(0, "gate", "g")
	as1 := credited(t, gate, c.Agent(0, "n1", "b1", coordtest.T4("GPU-n1")), "n1", alice)
	node, other := c.Dial(0, "agent", "n1"), c.Dial(0, "coordinator", "c2")
	for name, x := range map[string]struct {
		cc   *grpc.ClientConn
		more []string
		may  bool
	}{
		"a node that forwards":            {node, []string{"berth-forwarded", "c1"}, false},
		"a node that forwards for a job":  {node, []string{"berth-forwarded", "c1", "berth-plain", "1"}, false},
		"a coordinator, of a node's user": {other, []string{"berth-plain", "1"}, true},
		"a coordinator, of one without":   {other, []string{"berth-plain", "1", "berth-bare", "1"}, false},
		"the same with a credential":      {other, []string{"berth-plain", "1", "berth-bare", "1", cluster.CredentialKey, as1.Credential}, false},
	} {
		err := tries(x.cc, as1.Job)["submit"](metadata.AppendToOutgoingContext(as(t, alice), x.more...))
		if may := err == nil; may != x.may || !may && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, may: %t", name, err, x.may)
		}
	}
}

// TestAgentsThatGiveNoCredentials: while a user has an attempt on a node that was
// given none, as by an agent of before, none is asked for there.
func TestAgentsThatGiveNoCredentials(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Credentials: true, Waits: coordinator.Waits{JobUser: time.Millisecond}})
	gate, node := c.Dial(0, "gate", "g"), c.Dial(0, "agent", "n1")
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-n1"))
	as1 := credited(t, gate, a, "n1", alice)
	a.HandOutNothing()
	var old *nodev1.Assignment
	for old == nil {
		a.Hello("n1", "b1", coordtest.T4("GPU-n1"))
		id, as2 := runningJob(t, gate, a, int(reqs.Add(1)))
		if as2.Credential == "" {
			old = as2
			break
		}
		a.Report(as2, completed, 0)
		await(t, gate, id, "COMPLETED")
	}
	submits := func() error { return tries(node, as1.Job)["submit"](as(t, alice)) }
	if err := submits(); err != nil {
		t.Errorf("with a job that has no credential: %v", err)
	}
	a.Report(old, completed, 0)
	await(t, gate, old.Job, "COMPLETED")
	if err := submits(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("when all her jobs have one: %v", err)
	}
}

// TestEachNodeOfAGangHasItsCredential: one does not do on the other's.
func TestEachNodeOfAGangHasItsCredential(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Credentials: true, Waits: coordinator.Waits{JobUser: time.Millisecond}})
	gate := c.Dial(0, "gate", "g")
	a1, a2 := c.Agent(0, "n1", "b1", coordtest.T4("GPU-n1")), c.Agent(0, "n2", "b1", coordtest.T4("GPU-n2"))
	for node, a := range map[string]*coordtest.Agent{"n1": a1, "n2": a2} { // until both are known to hand them out
		one := credited(t, gate, a, node, bob)
		a.Report(one, completed, 0)
		await(t, gate, one.Job, "COMPLETED")
	}
	s := spec(0)
	s.Nodes = 2
	ids := submitted(t, gate, alice, reqID(int(reqs.Add(1))), s)
	given := map[string]string{"n1": assigned(t, a1, ids[0]).Credential, "n2": assigned(t, a2, ids[0]).Credential}
	for node := range given {
		for of, credential := range given {
			err := tries(c.Dial(0, "agent", node), ids[0])["submit"](showing(as(t, alice), credential))
			if may := err == nil; may != (of == node) || credential == "" {
				t.Errorf("on %s with the credential %q of %s: %v", node, credential, of, err)
			}
		}
	}
}

// TestAGangOnAnAgentThatGivesNone: its other nodes are given none either, since one
// of them could ask where none is given.
func TestAGangOnAnAgentThatGivesNone(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, Credentials: true, Waits: coordinator.Waits{JobUser: time.Millisecond}})
	gate := c.Dial(0, "gate", "g")
	a1, a2 := c.Agent(0, "n1", "b1", coordtest.T4("GPU-n1")), c.Agent(0, "n2", "b1", coordtest.T4("GPU-n2"))
	one := credited(t, gate, a1, "n1", bob)
	a1.Report(one, completed, 0)
	a2.HandOutNothing()
	for given := true; given; {
		a2.Hello("n2", "b1", coordtest.T4("GPU-n2"))
		s := spec(0)
		s.Node = "n2"
		ids := submitted(t, gate, bob, reqID(int(reqs.Add(1))), s)
		as := assigned(t, a2, ids[0])
		given = as.Credential != ""
		a2.Report(as, running, 0)
		a2.Report(as, completed, 0)
		await(t, gate, as.Job, "COMPLETED")
	}
	s := spec(0)
	s.Nodes = 2
	ids := submitted(t, gate, alice, reqID(int(reqs.Add(1))), s)
	for node, a := range map[string]*coordtest.Agent{"n1": a1, "n2": a2} {
		if given := assigned(t, a, ids[0]).Credential; given != "" {
			t.Errorf("node %s is given %q", node, given)
		}
	}
}

func showing(ctx context.Context, credentials ...string) context.Context {
	for _, x := range credentials {
		ctx = metadata.AppendToOutgoingContext(ctx, cluster.CredentialKey, x)
	}
	return ctx
}
