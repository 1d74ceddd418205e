package admin

import (
	"bytes"
	"context"
	"encoding/hex"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
	"github.com/berth-scheduler/berth/coordinator/api/jobs"
	"github.com/berth-scheduler/berth/coordinator/learner"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	"github.com/berth-scheduler/berth/fsm"
	"github.com/berth-scheduler/berth/model"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// modelServer serves requests about the predictor's weights.
type modelServer struct {
	apirpc.UnimplementedModelServiceServer
	c *Admin
}

// versions returns all weights, newest first, the built-in ones last. The first are
// in use.
func (c *Admin) versions() (vs []fsm.WeightsVersion, pinned bool) {
	ws := c.fsm.WeightsState()
	return append(ws.Versions, c.builtIn), ws.Pinned
}

// model returns one version for users; nil is the one in use.
func (c *Admin) model(version *uint64) (*apiv1.Model, fsm.WeightsVersion, error) {
	vs, pinned := c.versions()
	for i, v := range vs {
		if version == nil || v.Version == *version {
			return modelView(v, i == 0, pinned), v, nil
		}
	}
	return nil, fsm.WeightsVersion{}, cluster.Errorf(cluster.CodeNotFound, "version %d of the model is not kept; see: berth model list", *version)
}

func modelView(v fsm.WeightsVersion, inUse, pinned bool) *apiv1.Model {
	m := &apiv1.Model{
		Version: v.Version, InUse: inUse, Pinned: inUse && pinned, Sha256: hex.EncodeToString(v.SHA256), SizeBytes: uint64(len(v.Blob)),
		Source: v.Source, RolledBackTo: v.RolledBackTo, Trained: v.Trained, Tested: v.Tested,
		ErrorBefore: float64(v.ErrBeforePPM) / 1e6, ErrorAfter: float64(v.ErrAfterPPM) / 1e6, Reason: v.Reason,
	}
	if v.At != 0 {
		m.Published = timestamppb.New(v.At.Std())
	}
	switch v.Source {
	case "":
		m.Source = "unknown"
	case fsm.WeightsImport, fsm.WeightsRollback:
		by := uint32(v.By)
		m.By = &by
	}
	return m
}

// ListModels implements apirpc.ModelServiceServer.
func (s *modelServer) ListModels(ctx context.Context, _ *apiv1.ListModelsRequest) (*apiv1.ListModelsResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	vs, pinned := s.c.versions()
	resp := &apiv1.ListModelsResponse{Samples: uint32(s.c.fsm.SampleCount())}
	for i, v := range vs {
		resp.Models = append(resp.Models, modelView(v, i == 0, pinned))
	}
	return resp, nil
}

// GetModel implements apirpc.ModelServiceServer.
func (s *modelServer) GetModel(ctx context.Context, req *apiv1.GetModelRequest) (*apiv1.GetModelResponse, error) {
	if err := s.c.office.Verify(ctx); err != nil {
		return nil, err
	}
	m, v, err := s.c.model(req.Version)
	if err != nil {
		return nil, err
	}
	a := s.c.learn.Accuracy()
	resp := &apiv1.GetModelResponse{Model: m, Samples: uint32(s.c.fsm.SampleCount()), Accuracy: &apiv1.Accuracy{
		Runs: uint32(a.Memory.Runs), MeanError: a.Memory.Mean, MedianError: a.Memory.Median, WithinP95: a.WithinP95,
		UtilRuns: uint32(a.Util.Runs), UtilMedianError: a.Util.Median,
		TimeRuns: uint32(a.Time.Runs), TimeMedianError: a.Time.Median, OutOfMemory: uint32(a.OutOfMemory),
	}, Interference: s.c.interferenceView()}
	if req.WithWeights {
		resp.Weights = v.Blob
	}
	return resp, nil
}

// PublishModel implements apirpc.ModelServiceServer.
func (s *modelServer) PublishModel(ctx context.Context, req *apiv1.PublishModelRequest) (*apiv1.PublishModelResponse, error) {
	m, err := s.publish(ctx, req.Weights, "")
	if err != nil {
		return nil, err
	}
	return &apiv1.PublishModelResponse{Model: m}, nil
}

// publish activates weights that an administrator supplies. Those already in use
// are not published again, so that a request may be repeated.
func (s *modelServer) publish(ctx context.Context, blob []byte, reason string) (*apiv1.Model, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	if _, err := model.DecodeWeights(blob); err != nil {
		return nil, &cluster.Error{Code: cluster.CodeInvalid, Err: err,
			Msg: "weights: " + cluster.ClipText(err.Error(), nodes.MaxReason) + "; take a file that this version of berth exported"}
	}
	inUse, _ := s.c.versions()
	if bytes.Equal(inUse[0].Blob, blob) {
		m, _, err := s.c.model(nil)
		return m, err
	}
	_, err := s.c.prop.One(ctx, learner.InstallWeights(inUse[0].Version+1, blob, &logv1.WeightsOrigin{Source: fsm.WeightsImport, By: uint32(who.UID), Reason: reason}))
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "weights published", "version", inUse[0].Version+1, "bytes", len(blob), "uid", who.UID)
	m, _, err := s.c.model(nil)
	return m, err
}

// RollbackModel implements apirpc.ModelServiceServer.
func (s *modelServer) RollbackModel(ctx context.Context, req *apiv1.RollbackModelRequest) (*apiv1.RollbackModelResponse, error) {
	m, err := s.rollback(ctx, req.Version)
	if err != nil {
		return nil, err
	}
	return &apiv1.RollbackModelResponse{Model: m}, nil
}

// rollback reactivates a stored version. It does nothing if that is already in use,
// so that a request may be repeated.
func (s *modelServer) rollback(ctx context.Context, to uint64) (*apiv1.Model, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	target, v, err := s.c.model(&to)
	if err != nil {
		return nil, err
	}
	inUse, _, err := s.c.model(nil)
	if err != nil || inUse.Sha256 == target.Sha256 {
		return inUse, err
	}
	if to == 0 {
		return s.publish(ctx, v.Blob, "rolled back to the built-in weights")
	}
	if _, err := model.DecodeWeights(v.Blob); err != nil {
		return nil, &cluster.Error{Code: cluster.CodeConflict, Err: err, Msg: "weights: this version of berth cannot read them any more: " + cluster.ClipText(err.Error(), nodes.MaxReason)}
	}
	_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_RollbackWeights{RollbackWeights: &logv1.RollbackWeights{
		Version: inUse.Version + 1, To: to, By: uint32(who.UID),
	}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "weights rolled back", "version", inUse.Version+1, "to", to, "uid", who.UID)
	m, _, err := s.c.model(nil)
	return m, err
}

// PinModel implements apirpc.ModelServiceServer.
func (s *modelServer) PinModel(ctx context.Context, req *apiv1.PinModelRequest) (*apiv1.PinModelResponse, error) {
	m, err := s.pin(ctx, req)
	if err != nil {
		return nil, err
	}
	return &apiv1.PinModelResponse{Model: m}, nil
}

func (s *modelServer) pin(ctx context.Context, req *apiv1.PinModelRequest) (*apiv1.Model, error) {
	who := authorize.CallerOf(ctx)
	if err := s.c.auth.May(who, authorize.Admin, nil); err != nil {
		return nil, err
	}
	if !req.Pinned && req.Version != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "version: unpin takes none; it releases whatever is pinned")
	}
	m, _, err := s.c.model(nil)
	if err == nil && req.Version != nil && *req.Version != m.Version {
		m, err = s.rollback(ctx, *req.Version)
	}
	if err != nil {
		return nil, err
	}
	_, err = s.c.prop.One(ctx, &logv1.Command{Kind: &logv1.Command_PinWeights{PinWeights: &logv1.PinWeights{
		Version: m.Version, Pinned: req.Pinned, By: uint32(who.UID),
	}}})
	if err != nil {
		return nil, err
	}
	s.c.log.InfoContext(ctx, "weights pin changed", "version", m.Version, "pinned", req.Pinned, "uid", who.UID)
	m, _, err = s.c.model(nil)
	return m, err
}

// interferenceView returns what was learned of sharing, for users.
func (c *Admin) interferenceView() *apiv1.Interference {
	in := c.fsm.Interference()
	v := &apiv1.Interference{Version: in.Version, Observations: in.Observations, Sha256: hex.EncodeToString(in.SHA256), SizeBytes: uint64(len(in.Blob))}
	if in.Version > 0 {
		v.Published = timestamppb.New(in.At.Std())
	}
	for _, a := range c.learn.Company.Model().AllAdvice() {
		v.Advice = append(v.Advice, jobs.AdviceToAPI(a, a.GPUType))
	}
	return v
}
