package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/limit"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
)

// arrayOf is an array of n tasks that wait for good.
func arrayOf(n int) *apiv1.JobSpec {
	s := spec(0)
	s.Array, s.Hold = fmt.Sprintf("0-%d", n-1), true
	return s
}

// TestArraysOfARequestCountTogether: a thousand arrays, each of which there is room for, are
// not let in because they come together. So one request made 100 million jobs wait, and
// everybody else's were refused.
func TestArraysOfARequestCountTogether(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, MaxQueued: 2000}) // 1,500 of one user
	cc := c.Dial(0, "gate", "g")
	_, err := submit(t, cc, alice, reqID(1), arrayOf(600), spec(0), arrayOf(500), arrayOf(400))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.jobs_per_user") {
		t.Errorf("three arrays of 1,500 tasks together and a job: %v, want ResourceExhausted of limits.jobs_per_user", err)
	}
	if jobs := everyJob(t, cc); len(jobs) != 0 {
		t.Errorf("%d jobs of a refused request", len(jobs))
	}
	if ids, err := submit(t, cc, alice, reqID(2), arrayOf(600), arrayOf(500), arrayOf(400)); err != nil || len(ids) != 3 {
		t.Errorf("as many as there is room for: %v, %v", ids, err)
	}
	if _, err := submit(t, cc, alice, reqID(3), spec(0)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v, want ResourceExhausted", err)
	}
	if _, err := submit(t, cc, admin, reqID(4), arrayOf(500)); err != nil {
		t.Errorf("another user has no room left: %v", err)
	}
	if _, err := submit(t, cc, admin, reqID(5), spec(0)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "limits.queued_total") {
		t.Errorf("one more than may wait in all: %v, want ResourceExhausted of limits.queued_total", err)
	}
}

// TestRequestsAtOnceTakeNoRoomTwice: of requests that are looked at side by side, no more are
// let in than there is room for.
func TestRequestsAtOnceTakeNoRoomTwice(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, MaxQueued: 2000})
	cc := c.Dial(0, "gate", "g")
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for i := range 40 {
		wg.Go(func() {
			_, err := submit(t, cc, alice, reqID(i), arrayOf(400))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				in++
			} else if status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if in != 3 {
		t.Errorf("%d arrays of 400 tasks were let in at once, where a user may have 1,500", in)
	}
}

// TestNobodyIsCountedTwice: who comes beside a large array is not refused for its sake
// though there is room for both, while the array is about to be in the state and is in it.
func TestNobodyIsCountedTwice(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1, MaxQueued: 2000})
	cc := c.Dial(0, "gate", "g")
	var wg sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() {
		defer close(over)
		for i := range 40 {
			ids, err := submit(t, cc, alice, reqID(i), arrayOf(1200))
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := apirpc.NewJobServiceClient(cc).CancelJobs(as(t, alice), &apiv1.CancelJobsRequest{Ids: ids}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for k := range 4 {
		wg.Go(func() {
			for i := range 150 {
				select {
				case <-over:
					return
				default:
				}
				if _, err := submit(t, cc, bob, reqID(10_000+1000*k+i), spec(0)); err != nil {
					t.Errorf("bob has room for 800 jobs, and has at most 600: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestServicesOfAUserAreBounded: a leader looks at each every second, and a request looks for
// those of the same name.
func TestServicesOfAUserAreBounded(t *testing.T) {
	t.Parallel()
	c := coordtest.Start(t, coordtest.Options{N: 1})
	cc := c.Dial(0, "gate", "g")
	const atOnce, most = 100, 500
	service := func(name string) *apiv1.JobSpec {
		s := spec(0)
		s.Name, s.Array, s.Hold = name, "0-0%1", true
		s.Service = &apiv1.Service{Name: name, Replicas: 1, Least: 1, Most: 1, Drain: durationpb.New(0)}
		return s
	}
	some := func(of string, n int) (out []*apiv1.JobSpec) {
		for i := range n {
			out = append(out, service(fmt.Sprintf("%s-%d", of, i)))
		}
		return out
	}
	if _, err := submit(t, cc, alice, reqID(1), some("x", atOnce+1)...); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%d services in one request: %v, want InvalidArgument", atOnce+1, err)
	}
	submitted(t, cc, alice, reqID(99), some("first", atOnce)...)
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 1
	for i := range 2 * most / atOnce {
		wg.Go(func() {
			_, err := submit(t, cc, alice, reqID(2+i), some(fmt.Sprint("s", i), atOnce)...)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				in++
			} else if status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := 0; i < 2*most/atOnce && in < most/atOnce; i++ { // those that stood in each other's way
		if _, err := submit(t, cc, alice, reqID(100+i), some(fmt.Sprint("r", i), atOnce)...); err == nil {
			in++
		}
	}
	if in != most/atOnce {
		t.Errorf("%d requests of %d services were let in, want %d", in, atOnce, most/atOnce)
	}
	if _, err := submit(t, cc, alice, reqID(200), service("more")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one service more: %v, want ResourceExhausted", err)
	}
	if _, err := submit(t, cc, admin, reqID(201), service("more")); err != nil {
		t.Errorf("another user's: %v", err)
	}
	if _, err := submit(t, cc, alice, reqID(202), service("first-0")); err != nil {
		t.Errorf("a new revision of one that runs: %v", err)
	}
}

// TestChangesOfServicesCountWhatTheyBring: a change of a few bytes has the leader read, copy and
// check all that the service was described with. Four requests at once of ninety each took 560 MB,
// and a hundred of them might be under way.
func TestChangesOfServicesCountWhatTheyBring(t *testing.T) {
	t.Parallel()
	limits := limit.Unlimited()
	limits.Bandwidth = 1 << 20 // a second, of which 8 at once
	c := coordtest.Start(t, coordtest.Options{N: 1, Limits: &limits})
	cc := c.Dial(0, "gate", "g")
	s := spec(0)
	for i := range 240 {
		s.Env = append(s.Env, fmt.Appendf(nil, "A%d=%s", i, strings.Repeat("x", 4000)))
	}
	s.Array, s.Hold, s.Service = "0-0%1", true, &apiv1.Service{Name: "web", Replicas: 1, Least: 1, Most: 1, Drain: durationpb.New(0)}
	submitted(t, cc, alice, reqID(1), s)
	again := func() *apiv1.JobSpec {
		return &apiv1.JobSpec{CpuMilli: 2000, Service: &apiv1.Service{Name: "web"}, Change: &apiv1.ServiceChange{Fields: []string{"cpu_milli"}}}
	}
	if _, err := submit(t, cc, alice, reqID(2), again(), again()); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "must hold nothing else") {
		t.Errorf("two changes in one request: %v, want InvalidArgument", err)
	}
	for i := range 30 {
		_, err := submit(t, cc, alice, reqID(10+i), again())
		if status.Code(err) == codes.ResourceExhausted && i >= 5 {
			return
		}
		if err != nil {
			t.Fatalf("change %d of 0.9 MB: %v", i, err)
		}
	}
	t.Error("30 changes of 0.9 MB each were let in as if they were of a few bytes")
}

// TestUnreadAnswersAreCounted: whoever asks for what is large and does not read it fills no
// memory, and is let in again when it is gone. With 2,400 streams of one user a coordinator
// grew by 1.3 GB.
func TestUnreadAnswersAreCounted(t *testing.T) {
	t.Parallel()
	limits := limit.Unlimited()
	limits.Bytes = 16 << 20 // of which a quarter may lie unread
	c := coordtest.Start(t, coordtest.Options{N: 1, Limits: &limits})
	cc := c.Dial(0, "gate", "g")
	s := spec(0)
	s.Hold = true
	for i := range 240 {
		s.Env = append(s.Env, fmt.Appendf(nil, "A%d=%s", i, strings.Repeat("x", 4000)))
	}
	ids := submitted(t, cc, alice, reqID(1), s)
	get := func(uid uint32) error {
		_, err := apirpc.NewJobServiceClient(cc).GetJob(as(t, uid), &apiv1.GetJobRequest{Id: ids[0]})
		return err
	}
	ctx, cancel := context.WithCancel(as(t, alice))
	defer cancel()
	asked, full := 0, false
	for ; asked < 200 && !full; asked++ {
		st, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/berth.api.v1.JobService/GetJob")
		if err == nil {
			err = errors.Join(st.SendMsg(&apiv1.GetJobRequest{Id: ids[0]}), st.CloseSend())
		}
		if err != nil {
			t.Fatal(err)
		}
		if asked > 5 {
			err := get(alice)
			full = status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "have not read")
		}
	}
	if !full {
		t.Fatalf("%d answers of 0.9 MB each lie unread, and none was refused", asked)
	}
	if err := get(admin); err != nil {
		t.Errorf("another user's answer: %v", err)
	}
	cancel()
	for try := 0; get(alice) != nil; try++ {
		if try == 1000 {
			t.Fatal("what nobody waits for any more still counts")
		}
		runtime.GC() // of what a stream leaves behind that was cut off
		time.Sleep(10 * time.Millisecond)
	}
}
