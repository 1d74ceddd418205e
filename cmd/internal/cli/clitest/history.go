package clitest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ListHistory answers from the same jobs as the rest of the fake, in pages of
// two, and breaks off now and then as a departing coordinator does.
func (f *Fake) ListHistory(r *apiv1.ListHistoryRequest, s grpc.ServerStreamingServer[apiv1.ListHistoryResponse]) error {
	if err := f.Enter(s.Context(), "ListHistory"); err != nil {
		return err
	}
	f.Mu.Lock()
	jobs := slices.Concat(f.Jobs, f.Hidden)
	f.Mu.Unlock()
	slices.SortFunc(jobs, func(a, b *apiv1.Job) int { return endOrder(a, b, r.GetOldestFirst()) })
	var out []*apiv1.Job
	for _, j := range jobs {
		if !historyWants(r, j) {
			continue
		}
		if out = append(out, j); j.GetEnded() != nil && len(out) == int(r.GetLimit()) {
			break
		}
	}
	for page := range slices.Chunk(out, 2) {
		if err := s.Send(&apiv1.ListHistoryResponse{Jobs: page, Index: 900}); err != nil {
			return err
		}
	}
	return s.Send(&apiv1.ListHistoryResponse{Index: 900, Incomplete: f.Incomplete, Behind: f.Behind, LeaderIndex: f.LeaderIndex})
}

func endOrder(a, b *apiv1.Job, oldest bool) int {
	n := int(a.GetRevision()) - int(b.GetRevision())
	if n == 0 {
		n = int(a.GetId()) - int(b.GetId())
	}
	if (a.GetEnded() == nil) != (b.GetEnded() == nil) {
		if a.GetEnded() == nil {
			return -1
		}
		return 1
	}
	if !oldest {
		return -n
	}
	return n
}

func historyWants(r *apiv1.ListHistoryRequest, j *apiv1.Job) bool {
	q := r.GetFilter()
	one := func(among []string, v string) bool { return len(among) == 0 || slices.Contains(among, v) }
	if !one(q.GetUsers(), j.GetUser()) && !slices.Contains(q.GetUsers(), strconv.Itoa(int(j.GetUid()))) || !one(q.GetStates(), j.GetState()) ||
		!one(q.GetNames(), j.GetName()) || !one(q.GetPartitions(), j.GetPartition()) || !one(q.GetAccounts(), j.GetAccount()) {
		return false
	}
	if ids := q.GetIds(); len(ids) > 0 && !slices.Contains(ids, j.GetId()) && !slices.Contains(ids, j.GetArrayJobId()) {
		return false
	}
	st, _ := cluster.ParseJobState(j.GetState())
	if !st.Terminal() {
		return r.GetUnfinished()
	}
	if from := q.GetEndedFrom(); from != nil && j.GetEnded().AsTime().Before(from.AsTime()) {
		return false
	}
	if to := q.GetEndedBefore(); to != nil && !j.GetEnded().AsTime().Before(to.AsTime()) {
		return false
	}
	if r.GetAfterIndex() == 0 {
		return true
	}
	was := &apiv1.Job{Revision: r.GetAfterIndex(), Id: r.GetAfterJob(), Ended: j.GetEnded()}
	return endOrder(was, j, r.GetOldestFirst()) < 0
}

// GetReport answers with two users.
func (f *Fake) GetReport(ctx context.Context, r *apiv1.GetReportRequest) (*apiv1.GetReportResponse, error) {
	if err := f.Enter(ctx, "GetReport"); err != nil {
		return nil, err
	}
	ann := &apiv1.ReportLine{Key: "ann", Jobs: 41, Completed: 33, Failed: 5, Cancelled: 3, AllocatedGpuSeconds: 725_400, MeasuredGpuSeconds: 720_000,
		UsedGpuSeconds: 511_200, ChargedGpuSeconds: 430_120, CoreSeconds: 2_900_000, WaitP50Seconds: 4.2, WaitP95Seconds: 905}
	bob := &apiv1.ReportLine{Key: "bob", Jobs: 3, Completed: 3, AllocatedGpuSeconds: 360_000, MeasuredGpuSeconds: 360_000, UsedGpuSeconds: 10_800,
		ChargedGpuSeconds: 360_000, IdleGpuSeconds: 288_000, CoreSeconds: 90_000, WaitP50Seconds: 3700, WaitP95Seconds: 90_000}
	total := &apiv1.ReportLine{Jobs: 44, Completed: 36, Failed: 5, Cancelled: 3, AllocatedGpuSeconds: 1_085_400, MeasuredGpuSeconds: 1_080_000,
		UsedGpuSeconds: 522_000, ChargedGpuSeconds: 790_120, IdleGpuSeconds: 288_000, CoreSeconds: 2_990_000, WaitP50Seconds: 4.4, WaitP95Seconds: 3700}
	return &apiv1.GetReportResponse{Lines: []*apiv1.ReportLine{ann, bob}, Total: total, Index: 900, Incomplete: f.Incomplete, Behind: f.Behind, LeaderIndex: f.LeaderIndex}, nil
}

// PastJobs returns jobs that ended, some of an array.
func PastJobs() []*apiv1.Job {
	zero, one := int32(0), int32(1)
	gpu := []*apiv1.GPUShare{{Uuid: "GPU-1a", Type: "A100-SXM4-80GB", Share: &apiv1.Share{MemMib: 40960, Milli: 1000, Exclusive: true}}}
	job := func(id uint64, name, state string, began, took time.Duration, code *int32) *apiv1.Job {
		return &apiv1.Job{
			Id: id, Revision: 100 + id, Name: name, User: "ann", Uid: 1001, State: state, ExitCode: code, Node: "n1", NodeList: "n1", GpusWanted: 1, Gpus: gpu,
			Account: "vision", Qos: "normal", Partition: "gpu", Submitted: Ago(began + 90*time.Second), Started: Ago(began), Ended: Ago(began - took),
			Spec:     &apiv1.JobSpec{Name: name, Gpus: 1, Exclusive: true, GpuMemMib: 40960, CpuMilli: 8000, MemMib: 65536, TimeLimit: durationpb.New(24 * time.Hour)},
			Attempts: []*apiv1.Attempt{{No: 1, State: state, Node: "n1", Gpus: gpu, Started: Ago(began), Ended: Ago(began - took)}},
			Measured: &apiv1.Measured{GpuMemMib: 11469, GpuUtilMilli: 410, Seconds: took.Seconds(), HostMemMib: 9216, CpuMilli: 1900,
				Profile: &apiv1.Profile{GpuMemMeanMib: 10000, SampledSeconds: took.Seconds(), EnergyJ: 912_345, ReadBytes: 5 << 30, WrittenBytes: 200 << 20}},
		}
	}
	train := job(40, "train", "COMPLETED", 50*time.Hour, 90*time.Minute, &zero)
	failed := job(41, "train", "FAILED", 30*time.Hour, 2*time.Minute, &one)
	failed.Measured.GpuOom, failed.Reason = true, "NonZeroExitCode"
	var tasks []*apiv1.Job
	for i := range uint32(3) {
		x := job(uint64(42+i), "sweep", "COMPLETED", 20*time.Hour, time.Duration(10+i)*time.Minute, &zero)
		task := 2 * i
		x.ArrayJobId, x.ArrayTaskId, x.ArrayCount, x.ArrayTasks = 42, &task, 1, strconv.Itoa(int(task))
		x.Measured.GpuUtilMilli, x.Measured.HostMemMib = int64(20+10*i), int64(500*(i+1))
		tasks = append(tasks, x)
	}
	rest := &apiv1.Job{Id: 47, Revision: 190, Name: "sweep", User: "ann", Uid: 1001, State: "CANCELLED", Reason: "CancelledByUser", GpusWanted: 1, Partition: "gpu",
		Account: "vision", ArrayJobId: 42, ArrayTaskId: new(uint32(9)), ArrayTasks: "6-9", ArrayCount: 2, Submitted: Ago(21 * time.Hour), Ended: Ago(19 * time.Hour)}
	return append(append([]*apiv1.Job{train, failed}, tasks...), rest)
}

// NewPast returns a Fake that also knows PastJobs.
func NewPast() *Fake {
	f := NewFake()
	f.Jobs = append(PastJobs(), f.Jobs...)
	return f
}
