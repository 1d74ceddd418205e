package coordinator_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/berth-scheduler/berth/coordinator"
	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/raftnode"
	"github.com/berth-scheduler/berth/fsm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// largeSpec is a job with an environment of 800 KiB.
func largeSpec(tag string) *apiv1.JobSpec {
	s := spec(0)
	s.Hold = true
	for k := range 200 {
		s.Env = append(s.Env, fmt.Appendf(nil, "A%d=%s%s", k, tag, strings.Repeat("x", 4096-len(tag)-len(fmt.Sprintf("A%d=", k)))))
	}
	return s
}

// namesWork waits until all coordinators are known to read what is new.
func namesWork(t *testing.T, c *coordtest.Cluster, cc *grpc.ClientConn) {
	t.Helper()
	models := apirpc.NewModelServiceClient(cc)
	(&taught{t: t, c: c}).until("all coordinators to be asked", func() bool {
		return second(models.PinModel(as(t, admin), &apiv1.PinModelRequest{Pinned: true})) == nil
	})
}

// logged is how many bytes the entries of a stopped coordinator's log have, and the
// largest of them.
func logged(t *testing.T, dir string) (all, largest int) {
	t.Helper()
	o, err := raftnode.OpenOffline(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	err = o.Entries(1, func(e raftnode.Entry) error {
		all, largest = all+len(e.Data), max(largest, len(e.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, largest
}

// TestEqualEnvironmentsAreLoggedOnce: fifty jobs with an equal environment make the
// log longer by one, in entries of 64 KiB; each has it, also after a restart.
func TestEqualEnvironmentsAreLoggedOnce(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	namesWork(t, c, cc)
	const jobs, env = 50, 200 << 12
	var ids []uint64
	for i := range jobs / 2 { // one by one, and two at once
		if i%2 == 0 {
			got := submitted(t, cc, alice, reqID(i), largeSpec("a"))
			ids = append(ids, got...)
			continue
		}
		got := submitted(t, cc, alice, reqID(i), largeSpec("a"), largeSpec("a"), largeSpec("a"))
		ids = append(ids, got...)
	}
	ids = append(ids, must(submit(t, cc, alice, reqID(jobs), largeSpec("a")))(t)...)
	if len(ids) != jobs {
		t.Fatalf("%d jobs", len(ids))
	}
	c.Stop(0)
	all, largest := logged(t, c.Dir(0))
	t.Logf("%d jobs with an equal environment of %d bytes: the log has %d bytes, its largest entry %d", jobs, env, all, largest)
	if largest > fsm.BulkPart+256 || all > env+200_000 || all < env {
		t.Errorf("the log has %d bytes, its largest entry %d", all, largest)
	}
	c.Restart(0)
	c.Leader()
	cc = c.Dial(0, "gate", "g")
	for _, id := range []uint64{ids[0], ids[jobs-1]} {
		if got := job(t, cc, alice, id).GetSpec().GetEnv(); len(got) != 200 || !bytes.HasPrefix(got[7], []byte("A7=ax")) {
			t.Errorf("job %d has %d variables after a restart", id, len(got))
		}
	}
	if _, err := submit(t, cc, bob, reqID(jobs+1), largeSpec("a")); err != nil {
		t.Errorf("another user's, after a restart: %v", err)
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestChangesDoNotBringTheEnvironmentAgain: a job that is changed has it in the state.
func TestChangesDoNotBringTheEnvironmentAgain(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	namesWork(t, c, cc)
	id := must(submit(t, cc, alice, reqID(1), largeSpec("a")))(t)[0]
	for i := range 10 {
		name := fmt.Sprint("renamed", i)
		if _, err := apirpc.NewJobServiceClient(cc).UpdateJob(as(t, alice), &apiv1.UpdateJobRequest{Id: id, Name: &name}); err != nil {
			t.Fatal(err)
		}
	}
	if j := job(t, cc, alice, id).GetSpec(); j.GetName() != "renamed9" || len(j.GetEnv()) != 200 {
		t.Errorf("it is %q with %d variables", j.GetName(), len(j.GetEnv()))
	}
	c.Stop(0)
	if all, largest := logged(t, c.Dir(0)); largest > fsm.BulkPart+256 || all > 200<<12+200_000 {
		t.Errorf("the log has %d bytes, its largest entry %d", all, largest)
	}
}

// TestLargeJobsWithASilentCoordinator: while one may be of a release that knows no
// names, jobs have all that is theirs in the log, and are as good as any.
func TestLargeJobsWithASilentCoordinator(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 3, Steady: true, Absent: 1, Waits: coordinator.Waits{Agree: 20 * time.Millisecond}})
	cc := c.Dial(c.Leader(), "gate", "g")
	all := largeSpec("a")
	all.Hold = false // which not all may know
	id := must(submit(t, cc, alice, reqID(1), all))(t)[0]
	if got := job(t, cc, alice, id).GetSpec().GetEnv(); len(got) != 200 {
		t.Errorf("it has %d variables", len(got))
	}
	c.Restart(2)
	namesWork(t, c, cc)
	for i := range 3 {
		id := must(submit(t, cc, alice, reqID(2+i), largeSpec(fmt.Sprint(i/2))))(t)[0]
		if got := job(t, cc, alice, id).GetSpec().GetEnv(); len(got) != 200 {
			t.Errorf("it has %d variables", len(got))
		}
	}
	c.Stop(2)
	if _, largest := logged(t, c.Dir(2)); largest < 200<<12 {
		t.Errorf("the largest entry has %d bytes, want one with all", largest)
	}
}
