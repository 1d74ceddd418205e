package coordinator_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/backup"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// saved asks one coordinator for a copy of the state.
func saved(t *testing.T, cc *grpc.ClientConn, uid uint32) ([]byte, error) {
	t.Helper()
	stream, err := apirpc.NewBackupServiceClient(cc).SaveBackup(as(t, uid), &apiv1.SaveBackupRequest{})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return b.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		b.Write(m.Data)
	}
}

// restore makes coordinator i's directory of a copy.
func restore(t *testing.T, c *coordtest.Cluster, i int, file []byte, skip uint64) error {
	t.Helper()
	h, state, err := backup.Load(bytes.NewReader(file), &fsm.Revival{SkipJobs: skip})
	if err != nil {
		t.Fatal(err)
	}
	return raftnode.Restore(raftnode.Restored{
		Dir: c.Dir(i), ClusterID: h.ClusterID, ID: c.Peers()[i].ID, Servers: c.Peers(), Index: h.Index, Term: h.Term, State: state.Write,
	})
}

// TestAClusterIsRestored: what was acknowledged before a copy was taken is there
// in a cluster that is made of it, what came after is not, and neither agents nor
// users meet an index or an id that they know from before.
func TestAClusterIsRestored(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true})
	lead := c.Leader()
	cc := c.Dial((lead+1)%3, "gate", "g") // a follower: it passes the leader's answer on
	ids := submitted(t, cc, alice, reqID(1), spec(2000), spec(3000))
	if _, err := saved(t, cc, alice); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a user may copy the state: %v", err)
	}
	file, err := saved(t, cc, admin)
	if err != nil {
		t.Fatal(err)
	}
	h, err := backup.Check(bytes.NewReader(file), int64(len(file)))
	if err != nil || h.ClusterID != "test" || uint64(h.NextJob) != ids[1]+1 {
		t.Fatalf("header %+v, error %v", h, err)
	}
	before := job(t, cc, alice, ids[0])
	late := submitted(t, cc, alice, reqID(2), spec(1000))
	for i := range 3 {
		c.Stop(i)
	}
	if err := restore(t, c, 0, file, 100); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Fatalf("a directory in use was overwritten: %v", err)
	}
	for i := range 3 {
		c.Wipe(i)
		if err := restore(t, c, i, file, 100); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		c.Restart(i)
	}
	cc = c.Dial(c.Leader(), "gate", "g")
	if after := job(t, cc, alice, ids[0]); !proto.Equal(after.Submitted, before.Submitted) || after.Name != before.Name || after.Revision != before.Revision {
		t.Errorf("job %d was %v, is %v", ids[0], before, after)
	}
	if _, err := apirpc.NewJobServiceClient(cc).GetJob(as(t, alice), &apiv1.GetJobRequest{Id: late[0]}); status.Code(err) != codes.NotFound {
		t.Errorf("job %d, which came after the copy, is there: %v", late[0], err)
	}
	again, err := submit(t, cc, alice, reqID(3), spec(1000))
	if err != nil || again[0] != ids[1]+101 {
		t.Errorf("the next job is %v (%v), want %d", again, err, ids[1]+101)
	}
	if got := index(t, cc); got <= h.Index+1<<32 {
		t.Errorf("index %d: agents know greater fencing tokens than those to come", got)
	}
	// Agents are sent what there is, and the copy of the new cluster is one, too.
	a := c.Agent(c.Leader(), "n1", "b1", coordtest.T4("GPU-1"))
	next(t, a)
	if file, err = saved(t, cc, admin); err != nil {
		t.Fatal(err)
	}
	if _, _, err := backup.Load(bytes.NewReader(file), nil); err != nil {
		t.Error(err)
	}
}

// TestAJobIsToldToWaitForNobody: what a job waits for is changed as it is written,
// and to nothing; then the state can be saved, restored, and read by a coordinator
// that starts again.
func TestAJobIsToldToWaitForNobody(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, SnapshotThreshold: 1, SnapshotInterval: 10 * time.Millisecond})
	cc := c.Dial(0, "gate", "g")
	jobs := apirpc.NewJobServiceClient(cc)
	first, last := spec(1000), spec(1000)
	first.Hold = true
	array := array(t, cc, alice, reqID(1), "0-3", first)
	last.Depends = []*apiv1.Dependency{{Kind: "afterok", Job: array}}
	ids := submitted(t, cc, alice, reqID(2), last)
	task := uint32(2)
	change := func(deps ...*apiv1.Dependency) *apiv1.Job {
		t.Helper()
		resp, err := jobs.UpdateJob(as(t, alice), &apiv1.UpdateJobRequest{Id: ids[0], SetDepends: true, Depends: deps})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Job
	}
	j := change(&apiv1.Dependency{Kind: "after", Job: array, Task: &task, Delay: durationpb.New(3 * time.Minute)})
	if d := j.GetSpec().GetDepends(); len(d) != 1 || d[0].Task == nil || d[0].GetTask() != 2 || d[0].GetDelay().AsDuration() != 3*time.Minute {
		t.Errorf("changed to wait for task 2 and three minutes, it waits for %v", d)
	}
	if j = change(); len(j.GetSpec().GetDepends()) != 0 || j.GetDependency() != "" {
		t.Errorf("told to wait for nobody, it waits for %v, %q", j.GetSpec().GetDepends(), j.GetDependency())
	}
	file, err := saved(t, cc, admin)
	if err != nil {
		t.Fatal(err)
	}
	h, _, err := backup.Load(bytes.NewReader(file), nil)
	if err != nil {
		t.Fatalf("what was saved: %v", err)
	}
	until(t, "a snapshot of it", func() bool {
		taken, err := filepath.Glob(filepath.Join(c.Dir(0), "*", "*-*-*"))
		return err == nil && slices.ContainsFunc(taken, func(path string) bool {
			var term, index, at uint64
			n, err := fmt.Sscanf(filepath.Base(path), "%d-%d-%d", &term, &index, &at)
			return err == nil && n == 3 && filepath.Ext(path) == "" && index >= h.Index
		})
	})
	c.Kill(0)
	c.Restart(0)
	if j := job(t, c.Dial(0, "gate", "g"), alice, ids[0]); j.GetState() != "PENDING" || j.GetDependency() != "" {
		t.Errorf("after a restart it is %s, %q", j.GetState(), j.GetDependency())
	}
}
