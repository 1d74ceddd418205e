package clitest

import (
	"sync"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// AttachEnd is the coordinator's end of a stream to a job.
type AttachEnd = grpc.BidiStreamingServer[apiv1.AttachRequest, apiv1.AttachResponse]

// Streams answers streams to jobs with a test's function.
type Streams struct {
	apirpc.UnimplementedAttachServiceServer
	answer func(open *apiv1.AttachOpen, s AttachEnd) error

	// Mu guards Opens, how each stream began.
	Mu    sync.Mutex
	Opens []*apiv1.AttachOpen
}

// Attach implements apirpc.AttachServiceServer.
func (f *Streams) Attach(s AttachEnd) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	f.Mu.Lock()
	f.Opens = append(f.Opens, m.GetOpen())
	f.Mu.Unlock()
	return f.answer(m.GetOpen(), s)
}

// ServeAttach is Serve with streams to jobs.
func (w *World) ServeAttach(socket string, f *Fake, answer func(*apiv1.AttachOpen, AttachEnd) error) *Streams {
	a := &Streams{answer: answer}
	w.ServeGRPC(socket, func(s *grpc.Server) {
		apirpc.RegisterJobServiceServer(s, f)
		apirpc.RegisterClusterServiceServer(s, f)
		apirpc.RegisterAttachServiceServer(s, a)
	})
	return a
}

// Say sends messages, one after the other.
func Say(s AttachEnd, ms ...*apiv1.AttachResponse) error {
	for _, m := range ms {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// Opened reports that a stream is open.
func Opened(attempt uint32, offset int64) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Opened{Opened: &apiv1.AttachOpened{Attempt: attempt, Node: "n1", Offset: offset}}}
}

// Chunk returns a piece of a job's output.
func Chunk(offset int64, data string) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Log{Log: &apiv1.LogChunk{Offset: offset, Data: []byte(data)}}}
}

// EndedBy reports the end of a stream.
func EndedBy(e *apiv1.AttachEnded) *apiv1.AttachResponse {
	return &apiv1.AttachResponse{Kind: &apiv1.AttachResponse_Ended{Ended: e}}
}

// Refuse returns an error as coordinators send it.
func Refuse(code cluster.Code, msg string) error {
	return apiconv.Status(cluster.Errorf(code, "%s", msg)).Err()
}
