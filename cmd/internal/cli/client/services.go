package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// The services as a command asks them: gRPC's own stubs would link all of gRPC, for
// which each command would wait. TestServices holds them against the services.

// usersAPI is what the names of all services begin with.
const usersAPI = "/berth.api.v1."

// answer is a pointer to a message that can be made.
type answer[T any] interface {
	*T
	proto.Message
}

// ask makes a call of one request and one answer.
func ask[T any, P answer[T]](ctx context.Context, c *wire.Conn, method string, req proto.Message) (*T, error) {
	m := P(new(T))
	if err := c.Invoke(ctx, usersAPI+method, req, m); err != nil {
		return nil, err
	}
	return m, nil
}

// answers are those of a call of many.
type answers[T any, P answer[T]] struct{ *wire.Stream }

// Recv returns the next one; io.EOF is the end.
func (s answers[T, P]) Recv() (*T, error) {
	m := P(new(T))
	if err := s.Stream.Recv(m); err != nil {
		return nil, err
	}
	return m, nil
}

// follow makes a call of one request and many answers.
func follow[T any, P answer[T]](ctx context.Context, c *wire.Conn, method string, req proto.Message) (answers[T, P], error) {
	s, err := c.Stream(ctx, usersAPI+method)
	if err != nil {
		return answers[T, P]{}, err
	}
	if s.Send(req) == nil {
		_ = s.CloseSend() // whoever receives learns of what is wrong
	}
	return answers[T, P]{s}, nil
}

// JobService asks about jobs, and changes them; see the service of that name.
type JobService struct{ c *wire.Conn }

// SubmitJobs makes the call of that name.
func (s JobService) SubmitJobs(ctx context.Context, r *apiv1.SubmitJobsRequest) (*apiv1.SubmitJobsResponse, error) {
	return ask[apiv1.SubmitJobsResponse](ctx, s.c, "JobService/SubmitJobs", r)
}

// GetJob makes the call of that name.
func (s JobService) GetJob(ctx context.Context, r *apiv1.GetJobRequest) (*apiv1.GetJobResponse, error) {
	return ask[apiv1.GetJobResponse](ctx, s.c, "JobService/GetJob", r)
}

// ListJobs makes the call of that name.
func (s JobService) ListJobs(ctx context.Context, r *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	return ask[apiv1.ListJobsResponse](ctx, s.c, "JobService/ListJobs", r)
}

// CancelJobs makes the call of that name.
func (s JobService) CancelJobs(ctx context.Context, r *apiv1.CancelJobsRequest) (*apiv1.CancelJobsResponse, error) {
	return ask[apiv1.CancelJobsResponse](ctx, s.c, "JobService/CancelJobs", r)
}

// ControlJobs makes the call of that name.
func (s JobService) ControlJobs(ctx context.Context, r *apiv1.ControlJobsRequest) (*apiv1.ControlJobsResponse, error) {
	return ask[apiv1.ControlJobsResponse](ctx, s.c, "JobService/ControlJobs", r)
}

// UpdateJob makes the call of that name.
func (s JobService) UpdateJob(ctx context.Context, r *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	return ask[apiv1.UpdateJobResponse](ctx, s.c, "JobService/UpdateJob", r)
}

// ExplainJob makes the call of that name.
func (s JobService) ExplainJob(ctx context.Context, r *apiv1.ExplainJobRequest) (*apiv1.ExplainJobResponse, error) {
	return ask[apiv1.ExplainJobResponse](ctx, s.c, "JobService/ExplainJob", r)
}

// ReportRequests makes the call of that name.
func (s JobService) ReportRequests(ctx context.Context, r *apiv1.ReportRequestsRequest) (*apiv1.ReportRequestsResponse, error) {
	return ask[apiv1.ReportRequestsResponse](ctx, s.c, "JobService/ReportRequests", r)
}

// ListForecasts makes the call of that name.
func (s JobService) ListForecasts(ctx context.Context, r *apiv1.ListForecastsRequest) (*apiv1.ListForecastsResponse, error) {
	return ask[apiv1.ListForecastsResponse](ctx, s.c, "JobService/ListForecasts", r)
}

// Predict makes the call of that name.
func (s JobService) Predict(ctx context.Context, r *apiv1.PredictRequest) (*apiv1.PredictResponse, error) {
	return ask[apiv1.PredictResponse](ctx, s.c, "JobService/Predict", r)
}

// WatchJobs makes the call of that name.
func (s JobService) WatchJobs(ctx context.Context, r *apiv1.WatchJobsRequest) (answers[apiv1.WatchJobsResponse, *apiv1.WatchJobsResponse], error) {
	return follow[apiv1.WatchJobsResponse](ctx, s.c, "JobService/WatchJobs", r)
}

// ClusterService asks about nodes and members, and changes them; see the service of that name.
type ClusterService struct{ c *wire.Conn }

// GetStatus makes the call of that name.
func (s ClusterService) GetStatus(ctx context.Context, r *apiv1.GetStatusRequest) (*apiv1.GetStatusResponse, error) {
	return ask[apiv1.GetStatusResponse](ctx, s.c, "ClusterService/GetStatus", r)
}

// ListNodes makes the call of that name.
func (s ClusterService) ListNodes(ctx context.Context, r *apiv1.ListNodesRequest) (*apiv1.ListNodesResponse, error) {
	return ask[apiv1.ListNodesResponse](ctx, s.c, "ClusterService/ListNodes", r)
}

// DrainNode makes the call of that name.
func (s ClusterService) DrainNode(ctx context.Context, r *apiv1.DrainNodeRequest) (*apiv1.DrainNodeResponse, error) {
	return ask[apiv1.DrainNodeResponse](ctx, s.c, "ClusterService/DrainNode", r)
}

// ResumeNode makes the call of that name.
func (s ClusterService) ResumeNode(ctx context.Context, r *apiv1.ResumeNodeRequest) (*apiv1.ResumeNodeResponse, error) {
	return ask[apiv1.ResumeNodeResponse](ctx, s.c, "ClusterService/ResumeNode", r)
}

// DrainGPU makes the call of that name.
func (s ClusterService) DrainGPU(ctx context.Context, r *apiv1.DrainGPURequest) (*apiv1.DrainGPUResponse, error) {
	return ask[apiv1.DrainGPUResponse](ctx, s.c, "ClusterService/DrainGPU", r)
}

// ResumeGPU makes the call of that name.
func (s ClusterService) ResumeGPU(ctx context.Context, r *apiv1.ResumeGPURequest) (*apiv1.ResumeGPUResponse, error) {
	return ask[apiv1.ResumeGPUResponse](ctx, s.c, "ClusterService/ResumeGPU", r)
}

// SetSharing makes the call of that name.
func (s ClusterService) SetSharing(ctx context.Context, r *apiv1.SetSharingRequest) (*apiv1.SetSharingResponse, error) {
	return ask[apiv1.SetSharingResponse](ctx, s.c, "ClusterService/SetSharing", r)
}

// PowerNode makes the call of that name.
func (s ClusterService) PowerNode(ctx context.Context, r *apiv1.PowerNodeRequest) (*apiv1.PowerNodeResponse, error) {
	return ask[apiv1.PowerNodeResponse](ctx, s.c, "ClusterService/PowerNode", r)
}

// FenceNode makes the call of that name.
func (s ClusterService) FenceNode(ctx context.Context, r *apiv1.FenceNodeRequest) (*apiv1.FenceNodeResponse, error) {
	return ask[apiv1.FenceNodeResponse](ctx, s.c, "ClusterService/FenceNode", r)
}

// RemoveNode makes the call of that name.
func (s ClusterService) RemoveNode(ctx context.Context, r *apiv1.RemoveNodeRequest) (*apiv1.RemoveNodeResponse, error) {
	return ask[apiv1.RemoveNodeResponse](ctx, s.c, "ClusterService/RemoveNode", r)
}

// SetDenied makes the call of that name.
func (s ClusterService) SetDenied(ctx context.Context, r *apiv1.SetDeniedRequest) (*apiv1.SetDeniedResponse, error) {
	return ask[apiv1.SetDeniedResponse](ctx, s.c, "ClusterService/SetDenied", r)
}

// CreateToken makes the call of that name.
func (s ClusterService) CreateToken(ctx context.Context, r *apiv1.CreateTokenRequest) (*apiv1.CreateTokenResponse, error) {
	return ask[apiv1.CreateTokenResponse](ctx, s.c, "ClusterService/CreateToken", r)
}

// ListPartitions makes the call of that name.
func (s ClusterService) ListPartitions(ctx context.Context, r *apiv1.ListPartitionsRequest) (*apiv1.ListPartitionsResponse, error) {
	return ask[apiv1.ListPartitionsResponse](ctx, s.c, "ClusterService/ListPartitions", r)
}

// SetPartition makes the call of that name.
func (s ClusterService) SetPartition(ctx context.Context, r *apiv1.SetPartitionRequest) (*apiv1.SetPartitionResponse, error) {
	return ask[apiv1.SetPartitionResponse](ctx, s.c, "ClusterService/SetPartition", r)
}

// RemovePartition makes the call of that name.
func (s ClusterService) RemovePartition(ctx context.Context, r *apiv1.RemovePartitionRequest) (*apiv1.RemovePartitionResponse, error) {
	return ask[apiv1.RemovePartitionResponse](ctx, s.c, "ClusterService/RemovePartition", r)
}

// ListReservations makes the call of that name.
func (s ClusterService) ListReservations(ctx context.Context, r *apiv1.ListReservationsRequest) (*apiv1.ListReservationsResponse, error) {
	return ask[apiv1.ListReservationsResponse](ctx, s.c, "ClusterService/ListReservations", r)
}

// SetReservation makes the call of that name.
func (s ClusterService) SetReservation(ctx context.Context, r *apiv1.SetReservationRequest) (*apiv1.SetReservationResponse, error) {
	return ask[apiv1.SetReservationResponse](ctx, s.c, "ClusterService/SetReservation", r)
}

// RemoveReservation makes the call of that name.
func (s ClusterService) RemoveReservation(ctx context.Context, r *apiv1.RemoveReservationRequest) (*apiv1.RemoveReservationResponse, error) {
	return ask[apiv1.RemoveReservationResponse](ctx, s.c, "ClusterService/RemoveReservation", r)
}

// AccountService asks about accounts, QOS and quotas, and changes them; see the service of that name.
type AccountService struct{ c *wire.Conn }

// ListStanding makes the call of that name.
func (s AccountService) ListStanding(ctx context.Context, r *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	return ask[apiv1.ListStandingResponse](ctx, s.c, "AccountService/ListStanding", r)
}

// SetStanding makes the call of that name.
func (s AccountService) SetStanding(ctx context.Context, r *apiv1.SetStandingRequest) (*apiv1.SetStandingResponse, error) {
	return ask[apiv1.SetStandingResponse](ctx, s.c, "AccountService/SetStanding", r)
}

// HistoryService asks about jobs that have ended; see the service of that name.
type HistoryService struct{ c *wire.Conn }

// ListHistory makes the call of that name.
func (s HistoryService) ListHistory(ctx context.Context, r *apiv1.ListHistoryRequest) (answers[apiv1.ListHistoryResponse, *apiv1.ListHistoryResponse], error) {
	return follow[apiv1.ListHistoryResponse](ctx, s.c, "HistoryService/ListHistory", r)
}

// GetReport makes the call of that name.
func (s HistoryService) GetReport(ctx context.Context, r *apiv1.GetReportRequest) (*apiv1.GetReportResponse, error) {
	return ask[apiv1.GetReportResponse](ctx, s.c, "HistoryService/GetReport", r)
}

// ModelService asks about the predictor's weights, and changes them; see the service of that name.
type ModelService struct{ c *wire.Conn }

// ListModels makes the call of that name.
func (s ModelService) ListModels(ctx context.Context, r *apiv1.ListModelsRequest) (*apiv1.ListModelsResponse, error) {
	return ask[apiv1.ListModelsResponse](ctx, s.c, "ModelService/ListModels", r)
}

// GetModel makes the call of that name.
func (s ModelService) GetModel(ctx context.Context, r *apiv1.GetModelRequest) (*apiv1.GetModelResponse, error) {
	return ask[apiv1.GetModelResponse](ctx, s.c, "ModelService/GetModel", r)
}

// PublishModel makes the call of that name.
func (s ModelService) PublishModel(ctx context.Context, r *apiv1.PublishModelRequest) (*apiv1.PublishModelResponse, error) {
	return ask[apiv1.PublishModelResponse](ctx, s.c, "ModelService/PublishModel", r)
}

// RollbackModel makes the call of that name.
func (s ModelService) RollbackModel(ctx context.Context, r *apiv1.RollbackModelRequest) (*apiv1.RollbackModelResponse, error) {
	return ask[apiv1.RollbackModelResponse](ctx, s.c, "ModelService/RollbackModel", r)
}

// PinModel makes the call of that name.
func (s ModelService) PinModel(ctx context.Context, r *apiv1.PinModelRequest) (*apiv1.PinModelResponse, error) {
	return ask[apiv1.PinModelResponse](ctx, s.c, "ModelService/PinModel", r)
}

// ImportRuns makes the call of that name.
func (s ModelService) ImportRuns(ctx context.Context, r *apiv1.ImportRunsRequest) (*apiv1.ImportRunsResponse, error) {
	return ask[apiv1.ImportRunsResponse](ctx, s.c, "ModelService/ImportRuns", r)
}

// NotifyService asks about webhooks, and changes them; see the service of that name.
type NotifyService struct{ c *wire.Conn }

// ListWebhooks makes the call of that name.
func (s NotifyService) ListWebhooks(ctx context.Context, r *apiv1.ListWebhooksRequest) (*apiv1.ListWebhooksResponse, error) {
	return ask[apiv1.ListWebhooksResponse](ctx, s.c, "NotifyService/ListWebhooks", r)
}

// AddWebhook makes the call of that name.
func (s NotifyService) AddWebhook(ctx context.Context, r *apiv1.AddWebhookRequest) (*apiv1.AddWebhookResponse, error) {
	return ask[apiv1.AddWebhookResponse](ctx, s.c, "NotifyService/AddWebhook", r)
}

// RemoveWebhook makes the call of that name.
func (s NotifyService) RemoveWebhook(ctx context.Context, r *apiv1.RemoveWebhookRequest) (*apiv1.RemoveWebhookResponse, error) {
	return ask[apiv1.RemoveWebhookResponse](ctx, s.c, "NotifyService/RemoveWebhook", r)
}

// ListDeadNotices makes the call of that name.
func (s NotifyService) ListDeadNotices(ctx context.Context, r *apiv1.ListDeadNoticesRequest) (*apiv1.ListDeadNoticesResponse, error) {
	return ask[apiv1.ListDeadNoticesResponse](ctx, s.c, "NotifyService/ListDeadNotices", r)
}

// SeriesService asks what GPUs showed; see the service of that name.
type SeriesService struct{ c *wire.Conn }

// GetSeries makes the call of that name.
func (s SeriesService) GetSeries(ctx context.Context, r *apiv1.GetSeriesRequest) (*apiv1.GetSeriesResponse, error) {
	return ask[apiv1.GetSeriesResponse](ctx, s.c, "SeriesService/GetSeries", r)
}

// WebService lets users into web pages; see the service of that name.
type WebService struct{ c *wire.Conn }

// CreateLink makes the call of that name.
func (s WebService) CreateLink(ctx context.Context, r *apiv1.CreateLinkRequest) (*apiv1.CreateLinkResponse, error) {
	return ask[apiv1.CreateLinkResponse](ctx, s.c, "WebService/CreateLink", r)
}
