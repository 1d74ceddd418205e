package view

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/jsonout"
	"github.com/berth-scheduler/berth/cmd/internal/jsonout/jsontest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

var _ = draws.Fixed()

// TestJobsAsEncodingJSON: what is printed of a view is what encoding/json makes of it.
func TestJobsAsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, shared := jsonout.NewEncoder(1), map[reflect.Type][]reflect.Value{}
		for range 2 {
			var v JobView
			jsontest.Fill(t, &v, shared)
			want, err := jsontest.Naive(&v, 1)
			if err != nil {
				t.Skip(err)
			}
			got, err := e.Append(nil, &v)
			if err != nil || string(got) != want {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, want)
			}
		}
	})
}

// TestViewsOfWhatIsShared: views of many jobs are those of each, also of more than are held.
func TestViewsOfWhatIsShared(t *testing.T) {
	t.Parallel()
	var views Jobs
	specs, predicted := []*apiv1.JobSpec{nil}, []*apiv1.Prediction{nil}
	for i := range mostShared + 10 {
		specs = append(specs, &apiv1.JobSpec{Name: fmt.Sprint(i)})
		predicted = append(predicted, &apiv1.Prediction{GpuMemMib: int64(i)})
	}
	for i := range 3 * len(specs) {
		j := &apiv1.Job{Id: uint64(i), Spec: specs[i/2%len(specs)], Predicted: predicted[i%len(predicted)], Submitted: timestamppb.New(time.Unix(int64(i), 0))}
		want, err := json.Marshal(Job(j))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(views.Job(j))
		if err != nil || string(got) != string(want) {
			t.Fatalf("job %d: %v\n%s\nwant\n%s", i, err, got, want)
		}
		if len(views.specs) > mostShared || len(views.predicted) > mostShared {
			t.Fatalf("%d specs and %d predictions are held", len(views.specs), len(views.predicted))
		}
	}
}
