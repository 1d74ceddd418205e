package web

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/web/session"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// callable are the methods of the users' API that the page may call, which is what it uses.
var callable = map[string]struct{}{
	"JobService/ListJobs": {}, "JobService/GetJob": {}, "JobService/ExplainJob": {}, "JobService/CancelJobs": {},
	"ClusterService/GetStatus": {}, "ClusterService/ListNodes": {},
	"AccountService/ListStanding": {}, "HistoryService/GetReport": {}, "HistoryService/ListHistory": {}, "ModelService/ListModels": {}, "ModelService/GetModel": {}, "SeriesService/GetSeries": {},
}

const (
	// mostEnded is how many finished jobs the page may ask for at once.
	mostEnded = 1000
	// gzipFrom is the size from which answers are compressed.
	gzipFrom = 4 << 10
)

// call forwards a call of the page as its user: a message as JSON in, one out.
func (s *Server) call(w http.ResponseWriter, r *http.Request, sess *session.Session) {
	name := r.PathValue("service") + "/" + r.PathValue("method")
	if _, ok := callable[name]; !ok {
		refuse(w, http.StatusNotFound, cluster.Errorf(cluster.CodeNotFound, "the page does not call %.100q", name))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, cluster.Errorf(cluster.CodeInvalid, "read the request, of at most %d KiB: %v", maxBody>>10, err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime/2)
	defer cancel()
	resp, err := s.invoke(ctx, sess.User, name, body)
	if err != nil {
		fail(w, err)
		return
	}
	data, err := protojson.Marshal(resp)
	if err != nil {
		fail(w, err)
		return
	}
	send(w, r, "application/json", data)
}

// invoke calls a method with a request as JSON.
func (s *Server) invoke(ctx context.Context, u session.User, name string, body []byte) (proto.Message, error) {
	method, err := methodOf(name)
	if err != nil {
		return nil, err
	}
	req, resp := message(method.Input()), message(method.Output())
	if err := protojson.Unmarshal(body, req); err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "%s: %v", name, err)
	}
	conn, err := s.within.of(u)
	if err != nil {
		return nil, err
	}
	if list, ok := req.(*apiv1.ListHistoryRequest); ok {
		return history(ctx, conn, list)
	}
	return resp, conn.Invoke(ctx, "/berth.api.v1."+name, req, resp)
}

func methodOf(name string) (protoreflect.MethodDescriptor, error) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("berth.api.v1." + strings.ReplaceAll(name, "/", ".")))
	if err != nil {
		return nil, err
	}
	m, ok := d.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, errors.New(name + " is no method")
	}
	return m, nil
}

// message returns an empty message, which is compiled in as its method is.
func message(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return t.New().Interface()
}

// history collects the stream of finished jobs.
func history(ctx context.Context, conn grpc.ClientConnInterface, req *apiv1.ListHistoryRequest) (proto.Message, error) {
	if req.Limit == 0 || req.Limit > mostEnded {
		req.Limit = mostEnded
	}
	stream, err := apirpc.NewHistoryServiceClient(conn).ListHistory(ctx, req)
	if err != nil {
		return nil, err
	}
	all := &apiv1.ListHistoryResponse{}
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all.Jobs = append(all.Jobs, resp.Jobs...)
		all.Index, all.Incomplete, all.Behind, all.LeaderIndex = resp.Index, resp.Incomplete, resp.Behind, resp.LeaderIndex
	}
}

// fail answers with an error of the API.
func fail(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*cluster.Error](err)
	if !ok {
		e = apiconv.FromStatus(err)
	}
	status, ok := statusOf[e.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	refuse(w, status, cluster.Errorf(e.Code, "%s", e.Msg))
}

// send sends data, compressed if that is worthwhile and accepted.
func send(w http.ResponseWriter, r *http.Request, kind string, data []byte) {
	w.Header().Set("Content-Type", kind)
	if len(data) < gzipFrom || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = w.Write(data) // #nosec G705 -- JSON by its type, which browsers may not sniff; the page sets text, never HTML
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(data)
	_ = z.Close()
}
