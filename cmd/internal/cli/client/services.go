package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/cmd/internal/cli/wire"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// usersAPI is the prefix of the names of all services.
const usersAPI = "/berth.api.v1."

// Method is a unary call: its service and its name. gRPC's own stubs would
// link all of gRPC, which would slow the start of every command.
type Method[Q, A proto.Message] string

// Methods of the services of those names; TestMethods checks them against those.
const (
	SubmitJobs     Method[*apiv1.SubmitJobsRequest, *apiv1.SubmitJobsResponse]         = "JobService/SubmitJobs"
	GetJob         Method[*apiv1.GetJobRequest, *apiv1.GetJobResponse]                 = "JobService/GetJob"
	PageOfJobs     Method[*apiv1.ListJobsRequest, *apiv1.ListJobsResponse]             = "JobService/ListJobs"
	CancelJobs     Method[*apiv1.CancelJobsRequest, *apiv1.CancelJobsResponse]         = "JobService/CancelJobs"
	ControlJobs    Method[*apiv1.ControlJobsRequest, *apiv1.ControlJobsResponse]       = "JobService/ControlJobs"
	updateJob      Method[*apiv1.UpdateJobRequest, *apiv1.UpdateJobResponse]           = "JobService/UpdateJob"
	ExplainJob     Method[*apiv1.ExplainJobRequest, *apiv1.ExplainJobResponse]         = "JobService/ExplainJob"
	ReportRequests Method[*apiv1.ReportRequestsRequest, *apiv1.ReportRequestsResponse] = "JobService/ReportRequests"
	ListForecasts  Method[*apiv1.ListForecastsRequest, *apiv1.ListForecastsResponse]   = "JobService/ListForecasts"
	Predict        Method[*apiv1.PredictRequest, *apiv1.PredictResponse]               = "JobService/Predict"

	GetStatus         Method[*apiv1.GetStatusRequest, *apiv1.GetStatusResponse]                 = "ClusterService/GetStatus"
	ListNodes         Method[*apiv1.ListNodesRequest, *apiv1.ListNodesResponse]                 = "ClusterService/ListNodes"
	DrainNode         Method[*apiv1.DrainNodeRequest, *apiv1.DrainNodeResponse]                 = "ClusterService/DrainNode"
	ResumeNode        Method[*apiv1.ResumeNodeRequest, *apiv1.ResumeNodeResponse]               = "ClusterService/ResumeNode"
	DrainGPU          Method[*apiv1.DrainGPURequest, *apiv1.DrainGPUResponse]                   = "ClusterService/DrainGPU"
	ResumeGPU         Method[*apiv1.ResumeGPURequest, *apiv1.ResumeGPUResponse]                 = "ClusterService/ResumeGPU"
	SetSharing        Method[*apiv1.SetSharingRequest, *apiv1.SetSharingResponse]               = "ClusterService/SetSharing"
	PowerNode         Method[*apiv1.PowerNodeRequest, *apiv1.PowerNodeResponse]                 = "ClusterService/PowerNode"
	FenceNode         Method[*apiv1.FenceNodeRequest, *apiv1.FenceNodeResponse]                 = "ClusterService/FenceNode"
	RemoveNode        Method[*apiv1.RemoveNodeRequest, *apiv1.RemoveNodeResponse]               = "ClusterService/RemoveNode"
	SetDenied         Method[*apiv1.SetDeniedRequest, *apiv1.SetDeniedResponse]                 = "ClusterService/SetDenied"
	CreateToken       Method[*apiv1.CreateTokenRequest, *apiv1.CreateTokenResponse]             = "ClusterService/CreateToken"
	ListPartitions    Method[*apiv1.ListPartitionsRequest, *apiv1.ListPartitionsResponse]       = "ClusterService/ListPartitions"
	SetPartition      Method[*apiv1.SetPartitionRequest, *apiv1.SetPartitionResponse]           = "ClusterService/SetPartition"
	RemovePartition   Method[*apiv1.RemovePartitionRequest, *apiv1.RemovePartitionResponse]     = "ClusterService/RemovePartition"
	ListReservations  Method[*apiv1.ListReservationsRequest, *apiv1.ListReservationsResponse]   = "ClusterService/ListReservations"
	setReservation    Method[*apiv1.SetReservationRequest, *apiv1.SetReservationResponse]       = "ClusterService/SetReservation"
	removeReservation Method[*apiv1.RemoveReservationRequest, *apiv1.RemoveReservationResponse] = "ClusterService/RemoveReservation"

	ListStanding Method[*apiv1.ListStandingRequest, *apiv1.ListStandingResponse] = "AccountService/ListStanding"
	SetStanding  Method[*apiv1.SetStandingRequest, *apiv1.SetStandingResponse]   = "AccountService/SetStanding"

	GetReport Method[*apiv1.GetReportRequest, *apiv1.GetReportResponse] = "HistoryService/GetReport"

	ListModels    Method[*apiv1.ListModelsRequest, *apiv1.ListModelsResponse]       = "ModelService/ListModels"
	GetModel      Method[*apiv1.GetModelRequest, *apiv1.GetModelResponse]           = "ModelService/GetModel"
	PublishModel  Method[*apiv1.PublishModelRequest, *apiv1.PublishModelResponse]   = "ModelService/PublishModel"
	RollbackModel Method[*apiv1.RollbackModelRequest, *apiv1.RollbackModelResponse] = "ModelService/RollbackModel"
	PinModel      Method[*apiv1.PinModelRequest, *apiv1.PinModelResponse]           = "ModelService/PinModel"
	ImportRuns    Method[*apiv1.ImportRunsRequest, *apiv1.ImportRunsResponse]       = "ModelService/ImportRuns"

	ListWebhooks    Method[*apiv1.ListWebhooksRequest, *apiv1.ListWebhooksResponse]       = "NotifyService/ListWebhooks"
	AddWebhook      Method[*apiv1.AddWebhookRequest, *apiv1.AddWebhookResponse]           = "NotifyService/AddWebhook"
	RemoveWebhook   Method[*apiv1.RemoveWebhookRequest, *apiv1.RemoveWebhookResponse]     = "NotifyService/RemoveWebhook"
	ListDeadNotices Method[*apiv1.ListDeadNoticesRequest, *apiv1.ListDeadNoticesResponse] = "NotifyService/ListDeadNotices"

	GetSeries Method[*apiv1.GetSeriesRequest, *apiv1.GetSeriesResponse] = "SeriesService/GetSeries"

	CreateLink Method[*apiv1.CreateLinkRequest, *apiv1.CreateLinkResponse] = "WebService/CreateLink"
)

// Ask makes the call with one coordinator after another until the answer is
// definite; see Call.
func (m Method[Q, A]) Ask(ctx context.Context, c *Client, eff effect, req Q) (a A, err error) {
	err = c.Call(ctx, eff, func(ctx context.Context, on *wire.Conn) error {
		a, err = m.On(ctx, on, req)
		return err
	})
	return a, err
}

// On makes the call once, with the coordinator at the other end of the connection.
func (m Method[Q, A]) On(ctx context.Context, on *wire.Conn, req Q) (A, error) {
	a := empty[A]()
	if err := on.Invoke(ctx, usersAPI+string(m), req, a); err != nil {
		var none A
		return none, err
	}
	return a, nil
}

func empty[A proto.Message]() A {
	var none A
	return none.ProtoReflect().New().Interface().(A)
}

// answers are those of a streaming call.
type answers[A proto.Message] struct{ *wire.Stream }

// Recv returns the next answer; io.EOF is the end.
func (s answers[A]) Recv() (A, error) {
	a := empty[A]()
	err := s.Stream.Recv(a)
	return a, err
}

// follow makes a call with one request and a stream of answers.
func follow[A proto.Message](ctx context.Context, on *wire.Conn, method string, req proto.Message) (answers[A], error) {
	s, err := on.Stream(ctx, usersAPI+method)
	if err != nil {
		return answers[A]{}, err
	}
	if s.Send(req) == nil {
		_ = s.CloseSend() // the receiver learns of any error
	}
	return answers[A]{s}, nil
}
