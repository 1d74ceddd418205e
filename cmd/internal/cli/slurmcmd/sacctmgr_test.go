package slurmcmd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// standing is a cluster with two accounts, a quality of service and limits.
type standing struct{ *clitest.Fake }

func (s standing) ListStanding(context.Context, *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	return &apiv1.ListStandingResponse{
		Accounts: []*apiv1.Account{{Name: "science", Shares: 3}, {Name: "bio", Parent: "science", Shares: 2, Qos: []string{"high"}, DefaultQos: "high"}},
		Members: []*apiv1.AccountUser{
			{Account: "science", Uid: 1001, Name: "ann", Shares: 1, Coordinator: true}, {Account: "bio", Uid: 1001, Name: "ann", Shares: 5, Default: true},
			{Account: "bio", Uid: 1002, Shares: 1},
		},
		Qos: []*apiv1.QOS{{Name: "low", Cancel: true}, {Name: "high", Priority: 10, Preempts: []string{"low"}, Grace: durationpb.New(time.Minute)}},
		Quotas: []*apiv1.Quota{
			{Account: "bio", Limits: &apiv1.Limits{GpuMilli: 8000, GpuTimeUs: 3_600_000_000 * 5}},
			{Each: true, Limits: &apiv1.Limits{Jobs: 2000, Running: 9}},
			{Account: "bio", User: true, Uid: 1001, Limits: &apiv1.Limits{Running: 4}},
			{Qos: "high", Each: true, Limits: &apiv1.Limits{Running: 2, MaxTime: durationpb.New(4 * time.Hour)}},
		},
	}, nil
}

func withStanding(t *testing.T) *clitest.World {
	w, f := clitest.NewWorld(t), standing{clitest.NewFake()}
	w.ServeGRPC("/a", func(s *grpc.Server) {
		apirpc.RegisterJobServiceServer(s, f)
		apirpc.RegisterClusterServiceServer(s, f)
		apirpc.RegisterAccountServiceServer(s, f)
	})
	return w
}

// TestSacctmgrShow: who is in which account, by which rules and limits, in the fields
// that scripts ask for.
func TestSacctmgrShow(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"sacctmgr -nP show users where user=ann withassoc format=account,cluster,partition,qos":           "bio|berth||high\nscience|berth||low,high\n",
		"sacctmgr -n -P show user ann format=defaultaccount,adminlevel":                                   "bio|None\n",
		"sacctmgr list user format=user%-6,account":                                                       "User      Account \n------ ---------- \n1002              \nann               \n",
		"sacctmgr -p show assoc where account=bio format=user,share,grptres,grptresmins,maxjobs":          "User|Share|GrpTRES|GrpTRESMins|MaxJobs|\n|2|gres/gpu=8|gres/gpu=300||\n1002|1|||9|\nann|5|||4|\n",
		"sacctmgr -nP show associations users=ann format=Account,User,Fairshare,MaxSubmitJobs,DefaultQOS": "science|ann|1|2000|\nbio|ann|5|2000|high\n",
		"sacctmgr -nP show acc format=account,parentname":                                                 "science|root\nbio|science\n",
		"sacctmgr show qos high -nP format=name,priority,preempt,gracetime,maxjobspu,maxwall":             "high|10|low|00:01:00|2|04:00:00\n",
		"sacctmgr -nP show qos format=name,preemptmode":                                                   "low|cancel\nhigh|requeue\n",
		"sacctmgr -nP show user where user=nobody":                                                        "",
		"sacctmgr -nP list cluster format=cluster":                                                        "berth\n",
		"sacctmgr show user ann": "      User   Def Acct     Admin \n---------- ---------- --------- \n       ann        bio      None \n",
	} {
		w := withStanding(t)
		if code := w.Run(strings.Fields(line)...); code != 0 || w.Out.String() != want {
			t.Errorf("%s: exit code %d: %q, want %q; %s", line, code, w.Out.String(), want, w.Errs.String())
		}
	}
	for line, want := range map[string]string{
		"sacctmgr -i add user ann account=bio": "add: accounts and their users are changed by berth account",
		"sacctmgr show federation":             "federation is not supported; say what to show: account, association, cluster, qos, tres or user",
		"sacctmgr show user format=nosuch":     " Unknown field \"nosuch\"",
		"sacctmgr show user set=x":             " Unknown condition: set=x",
		"sacctmgr show":                        "say what to show",
		"sacctmgr":                             "say what to show",
	} {
		w := withStanding(t)
		if code := w.Run(strings.Fields(line)...); code != 1 || !strings.HasPrefix(w.Errs.String(), "sacctmgr: error: "+want) && !strings.HasPrefix(w.Errs.String(), want) {
			t.Errorf("%s: exit code %d: %s", line, code, w.Errs.String())
		}
	}
}
