package jobcmd_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// held is a coordinator at which jobs wait for a quota.
type held struct {
	*clitest.Fake
	resp *apiv1.ExplainJobResponse
}

func (h held) ExplainJob(context.Context, *apiv1.ExplainJobRequest) (*apiv1.ExplainJobResponse, error) {
	return h.resp, nil
}

// TestWhyStanding: who waits for a quota is told the limit, its value, the use
// and when there will be room, and everybody the place in fair share. Cells of the
// team have room once its jobs end; where they never hold the job, nothing of it is said.
func TestWhyStanding(t *testing.T) {
	t.Parallel()
	job := &apiv1.Job{Id: 60, Name: "train", User: "ada", Uid: 1000, Account: "bio", State: "PENDING", Reason: "AssocGrpGRES"}
	fair := &apiv1.FairShare{Account: "bio", Rank: 9, Of: 12, Factor: 4.0 / 12, AccountShares: 0.25, AccountUse: 0.4, UserShares: 0.5, UserUse: 0.125, WeightMilli: 500}
	for name, r := range map[string]*apiv1.ExplainJobResponse{
		"why-quota": {Job: job, FairShare: fair,
			Explanations: []*apiv1.Explanation{{Code: "AssocGrpGRES", Detail: "account bio may hold 8 GPUs at once and holds 8; this job takes 1", Count: 1}},
			Room:         &apiv1.QuotaRoom{P50: timestamppb.New(clitest.Now.Add(20 * time.Minute)), P90: timestamppb.New(clitest.Now.Add(50 * time.Minute)), Words: "job 11 ends, of 3 that count for it"}},
		"why-budget": {Job: job, FairShare: &apiv1.FairShare{Rank: 3, Of: 6, Factor: 4.0 / 6},
			Explanations: []*apiv1.Explanation{{Code: "AssocGrpGRESMinutes", Detail: "account bio may use 5.0 GPU-hours that have not decayed, and 6.1 GPU-hours are used", Count: 1}}},
		"why-account": {Job: job,
			Explanations: []*apiv1.Explanation{{Code: "AssocGrpGRES", Detail: "user ada in account bio may hold 1 GPU at once and holds 1; this job takes 1", Count: 1}}},
		"why-cells": {Job: job,
			Explanations: []*apiv1.Explanation{{Code: "AssocGrpGRES", Detail: "team vision has 8 of 8 GPUs of its cells in use; it may borrow when preemptible: submit with a checkpoint hook", Count: 1}}},
		"why-no-cells": {Job: job,
			Explanations: []*apiv1.Explanation{{Code: "AssocGrpGRES", Detail: "team vision is guaranteed no T4; it borrows as soon as cards are idle", Count: 1}}},
	} {
		w, l, s := clitest.NewWorld(t), bufconn.Listen(1<<20), grpc.NewServer()
		apirpc.RegisterJobServiceServer(s, held{clitest.NewFake(), r})
		served := make(chan struct{})
		go func() { defer close(served); _ = s.Serve(l) }()
		t.Cleanup(func() { s.Stop(); <-served })
		w.Sockets["/a"] = l
		golden.Check(t, name, w.Transcript("why", "60"))
		if name == "why-quota" {
			golden.Check(t, name+"-json", w.Transcript("why", "60", "-o", "json"))
		}
	}
}
