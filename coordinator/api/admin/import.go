package admin

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// ImportRuns implements apirpc.ModelServiceServer.
func (s *modelServer) ImportRuns(ctx context.Context, req *apiv1.ImportRunsRequest) (*apiv1.ImportRunsResponse, error) {
	jobs, err := s.importRuns(ctx, req.Runs)
	if err != nil {
		return nil, err
	}
	return &apiv1.ImportRunsResponse{Jobs: uint32(jobs)}, nil
}

// importRuns learns from runs under another scheduler, and returns how many jobs
// they are.
func (s *modelServer) importRuns(ctx context.Context, runs []*apiv1.PastRun) (int, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return 0, err
	}
	if n := len(runs); n == 0 || n > fsm.MaxImport {
		return 0, cluster.Errorf(cluster.CodeInvalid, "runs: %d, want 1 to %d", n, fsm.MaxImport)
	}
	cmd := &logv1.ImportRuns{By: uint32(who.UID)}
	jobs := map[string]struct{}{}
	for i, r := range runs {
		if err := s.checkRun(r); err != nil {
			return 0, cluster.Errorf(cluster.CodeInvalid, "run %d: %v", i+1, err)
		}
		sig := model.KinSignature(strconv.FormatUint(uint64(r.Uid), 10), r.Name, int(r.Gpus))
		jobs[sig] = struct{}{}
		cmd.Samples = append(cmd.Samples, &logv1.Sample{
			Signature: sig, Uid: r.Uid, GpuType: r.GpuType, GpuMemPeakMib: r.GpuMemMib, Milli: r.GpuUtilMilli,
			HostMemMib: r.HostMemMib, CpuMilli: r.CpuMilli, DurationUs: time.Duration(r.Seconds * float64(time.Second)).Microseconds(),
		})
	}
	if _, err := s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_ImportRuns{ImportRuns: cmd}}); err != nil {
		return 0, err
	}
	s.c.log.InfoContext(ctx, "runs imported", "runs", len(runs), "jobs", len(jobs), "uid", who.UID)
	return len(jobs), nil
}

// checkRun validates a run formally; whether its figures are possible is checked
// where they are applied.
func (s *modelServer) checkRun(r *apiv1.PastRun) error {
	switch {
	case r.Name == "" || len(r.Name) > cluster.MaxNameLen:
		return cluster.Errorf(cluster.CodeInvalid, "name: has %d bytes, want 1 to %d", len(r.Name), cluster.MaxNameLen)
	case r.Gpus == 0 || r.Gpus > cluster.MaxGPUsPerJob:
		return cluster.Errorf(cluster.CodeInvalid, "gpus: %d, want 1 to %d", r.Gpus, cluster.MaxGPUsPerJob)
	case !(r.Seconds >= 0 && r.Seconds < 1e9):
		return cluster.Errorf(cluster.CodeInvalid, "seconds: want 0 to a billion")
	case !slices.ContainsFunc(learner.GPUTypes(s.c.fsm.Nodes()), func(t model.TypeInfo) bool { return t.Name == r.GpuType }):
		return cluster.Errorf(cluster.CodeInvalid, "GPU type %.64q is not in the cluster", r.GpuType)
	}
	return nil
}
