package coordinator_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	"github.com/berth-scheduler/berth/proto/conv/apiconv"
)

// TestListingsAsColumns lists the same jobs one by one and as columns, by all
// filters.
func TestListingsAsColumns(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	jobs := apirpc.NewJobServiceClient(c.Dial(c.Leader(), "gate", "g"))
	named := spec(1)
	named.Name = "special"
	resp, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: "columns-of-jobs-1", Jobs: []*apiv1.JobSpec{spec(1), named, spec(0)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		req  *apiv1.ListJobsRequest
		want []uint64
	}{
		{"all", &apiv1.ListJobsRequest{}, resp.Ids},
		{"by name", &apiv1.ListJobsRequest{Names: []string{"special", "other"}}, resp.Ids[1:2]},
		{"by user", &apiv1.ListJobsRequest{Users: []string{"nobody-at-all"}}, nil},
		{"by node", &apiv1.ListJobsRequest{Nodes: []string{"n1"}}, nil},
		{"by id", &apiv1.ListJobsRequest{Ids: resp.Ids[2:]}, resp.Ids[2:]},
	} {
		for _, of := range []apiv1.JobColumnsOf{0, apiv1.JobColumnsOf_JOB_COLUMNS_OF_WAITING, apiv1.JobColumnsOf_JOB_COLUMNS_OF_ALL} {
			tt.req.Columns = of
			got, err := jobs.ListJobs(as(t, alice), tt.req)
			if err != nil {
				t.Fatal(err)
			}
			ids := got.GetColumns().GetIds()
			if of == 0 && ids != nil {
				t.Errorf("%s: columns came that nobody asked for", tt.name)
			}
			for _, j := range got.Jobs {
				ids = append(ids, j.Id)
			}
			if diff := cmp.Diff(tt.want, ids); diff != "" {
				t.Errorf("%s, %v: %s", tt.name, of, diff)
			}
		}
	}
}

// TestListingsWithWhatIsCommon: what jobs have in common comes once, and together that is what
// comes of each otherwise, whoever asks. A page ends where what they have in common is long,
// and nothing is lost.
func TestListingsWithWhatIsCommon(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	jobs := apirpc.NewJobServiceClient(c.Dial(c.Leader(), "gate", "g"))
	ranked, held, long := spec(2), spec(1), make([]*apiv1.JobSpec, 90)
	ranked.Nodes, ranked.GpuType = 2, "T4"
	held.Hold, held.Env = true, [][]byte{[]byte("A=b")}
	for i := range long {
		long[i] = spec(0)
		long[i].Command = append(long[i].Command, []byte(strings.Repeat(strconv.Itoa(i%10), 30_000+i)))
	}
	for i, s := range [][]*apiv1.JobSpec{{spec(1), ranked, spec(1), held}, {held, spec(1), held}, long[:45], long[45:]} {
		if _, err := jobs.SubmitJobs(as(t, alice), &apiv1.SubmitJobsRequest{RequestId: reqID(400 + i), Jobs: s}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobs.SubmitJobs(as(t, bob), &apiv1.SubmitJobsRequest{RequestId: reqID(500), Jobs: []*apiv1.JobSpec{spec(1), held, spec(1)}}); err != nil {
		t.Fatal(err)
	}
	all := func(uid uint32, shared bool) (got []*apiv1.Job, pages, common int) {
		req := &apiv1.ListJobsRequest{Shared: shared}
		if !shared {
			req.PageSize = 100
		}
		for more := true; more; more = req.PageToken != "" {
			resp, err := jobs.ListJobs(as(t, uid), req)
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Jobs) > 0 && shared == (resp.Jobs[0].Spec != nil) {
				t.Errorf("the spec of job %d came apart although shared is %t", resp.Jobs[0].Id, shared)
			}
			if size := proto.Size(resp); shared && size > 3<<20 {
				t.Errorf("a page has %d bytes", size)
			}
			pages, common = pages+1, common+len(resp.Common)
			apiconv.Join(resp)
			got, req.PageToken = append(got, resp.Jobs...), resp.NextPageToken
		}
		return got, pages, common
	}
	for _, uid := range []uint32{alice, bob} {
		want, _, _ := all(uid, false)
		got, pages, common := all(uid, true)
		if len(got) != 4+3+90+3 || len(got) != len(want) {
			t.Fatalf("user %d sees %d jobs, and %d one by one", uid, len(got), len(want))
		}
		for i := range got {
			if !proto.Equal(got[i], want[i]) {
				t.Errorf("user %d sees job %d otherwise: %s", uid, want[i].Id, cmp.Diff(want[i], got[i], protocmp.Transform()))
				break
			}
		}
		if want := 90 + 9; common > want {
			t.Errorf("%d times what jobs have in common came, want %d at most", common, want)
		}
		if want := map[uint32]int{alice: 2, bob: 1}[uid]; pages != want { // bob sees no commands of hers
			t.Errorf("%d pages for user %d, want %d", pages, uid, want)
		}
	}
}
