package coordinator_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
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
