package lead

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cluster/study"
	"github.com/berth-scheduler/berth/coordinator/nodes"
	logv1 "github.com/berth-scheduler/berth/proto/berth/log/v1"
)

// town is a lab with replicas that its test plays: each that may start does so at once on a
// card of its own and is healthy, but those that are sick or never come up.
type town struct {
	*lab
	sick map[cluster.JobID]string // tells why
	load float64
	at   cluster.NodeID // where replicas start
	room int
}

func newTown(t *testing.T) *town {
	l := &town{lab: newLab(t, Config{}, planBy(nil)), sick: map[cluster.JobID]string{}, at: "n1", room: 8}
	l.machine("n1", 8, nil)
	return l
}

func (l *town) serve(replicas, most, throttle int, change func(*service.Service)) cluster.JobID {
	return l.serveBy(1000, replicas, most, throttle, change)
}

func (l *town) serveBy(uid cluster.UID, replicas, most, throttle int, change func(*service.Service)) cluster.JobID {
	s := &service.Service{
		Name: "web", Replicas: replicas, Min: 1, Max: most, Port: "http", Health: "/healthz", Every: 2 * time.Second, Fails: 3, StartWithin: time.Minute, Drain: 10 * time.Second,
	}
	if change != nil {
		change(s)
	}
	return l.submitBy(uid, job(1, func(j *cluster.Spec) {
		j.Service = s
		tasks, err := cluster.ParseTasks(fmt.Sprintf("0-%d", most-1))
		if err != nil {
			l.t.Fatal(err)
		}
		j.Array = &cluster.Array{Tasks: tasks, Throttle: throttle}
		if on := s.Metric(); on != "" {
			j.Study = &study.Study{Metric: on}
		}
	}))[0]
}

// startable are the replicas that may start, and when the next one may.
func (l *town) startable() ([]*cluster.Job, cluster.Time) {
	snap, next := l.f.SchedulerSnapshotAt(cluster.TimeOf(time.Now()))
	return snap.Waiting, next
}

// live lets a second pass in which nodes do what they are told.
func (l *town) live(seconds int) {
	for range seconds {
		used := map[cluster.GPUID]bool{}
		var starts []*cluster.Job
		for _, r := range l.f.Services() {
			for _, j := range r.Jobs {
				a := j.Live()
				if a == nil {
					continue
				}
				if a.Preempt != nil || j.Cancel != nil {
					state := cluster.JobCancelled
					if a.Preempt != nil {
						state = cluster.JobPreempted
					}
					l.say(j.ID, state, nil)
					continue
				}
				used[a.Berth.GPUs[0].GPU] = true
				why := l.sick[j.ID]
				u := nodes.Use{Probe: &service.Probe{OK: why == "", Why: why}, KnownMs: time.Now().UnixMilli(), BusyMs: int64(l.load * float64(a.GPUMilli) * float64(time.Now().UnixMilli()))}
				if why != "" {
					l.mu.Lock()
					was := l.uses[cluster.AttemptID{Job: j.ID, No: a.No}].Probe
					l.mu.Unlock()
					if u.Probe.Fails = 1; was != nil {
						u.Probe.Fails = was.Fails + 1
					}
				}
				u.Progress = &cluster.Progress{Seen: &study.Seen{Last: l.load}}
				if why != "" {
					u.Progress.Seen.Last *= 100
				}
				l.use(j.ID, a.No, u)
			}
		}
		ready, _ := l.startable()
		starts = append(starts, ready...)
		for _, j := range starts {
			for card := range l.room {
				if b := berth(l.at, card); !used[b.GPUs[0].GPU] {
					used[b.GPUs[0].GPU] = true
					l.start(j.ID, b)
					l.say(j.ID, cluster.JobRunning, nil)
					break
				}
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

// ready are the replicas that take requests, as REVISION_TASK.
func (l *town) ready() []string {
	out := []string{}
	for _, r := range l.f.Services() {
		for _, j := range r.Jobs {
			if a := j.Live(); a != nil && a.Serving != nil && a.Serving.State == service.Ready && a.Preempt == nil && j.Cancel == nil {
				out = append(out, fmt.Sprintf("%d_%d", r.ID, j.ArrayTaskID))
			}
		}
	}
	slices.Sort(out)
	return out
}

func (l *town) want(want ...string) {
	l.t.Helper()
	if got := l.ready(); !slices.Equal(got, want) {
		l.t.Errorf("take requests: %q, want %q", got, want)
	}
}

// TestServices: replicas come up, the sick one takes no more requests and starts again, and
// who leads next goes on.
func TestServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		id := l.serve(2, 4, 2, nil)
		l.sick[id+1] = "GET /healthz: 500"
		l.live(4)
		l.want("1_0")
		if v := l.l.Served(1000, "web").Unready; len(v) != 1 || v[cluster.AttemptID{Job: id + 1, No: 1}] != "GET /healthz: 500" {
			t.Errorf("why a replica is not ready: %v", v)
		}
		delete(l.sick, id+1)
		l.live(1)
		l.want("1_0", "1_1")
		l.sick[id] = "GET /healthz: 503"
		l.live(5)
		l.want("1_1")
		if a := l.job(id).Live(); a == nil || a.No != 1 || a.Serving.State != service.Unhealthy || a.Serving.Why != "GET /healthz: 503" {
			t.Errorf("unhealthy for three seconds: %+v", a)
		}
		l.live(4)
		delete(l.sick, id)
		l.live(4)
		l.want("1_0", "1_1")
		first := l.job(id).Attempts[0]
		if first.State != cluster.JobPreempted || first.Reason.Detail != "unhealthy 6 times in a row: GET /healthz: 503" || len(l.job(id).Attempts) != 2 {
			t.Errorf("the sick replica ended as %v: %v", first.State, first.Reason)
		}
		// One that never comes up ends after a minute.
		l.sick[id+2] = "nothing listens on port 7"
		l.do(&logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{Array: uint64(id), Change: logv1.TaskChange_TASK_CHANGE_THROTTLE, Throttle: 3, Scales: true}}})
		l.live(50)
		if a := l.job(id + 2).Live(); a == nil || a.No != 1 {
			t.Errorf("it had not a minute: %+v", a)
		}
		l.live(15)
		if as := l.job(id + 2).Attempts; len(as) != 2 || as[0].Reason.Detail != "not healthy within 1m0s of its start: nothing listens on port 7" {
			t.Errorf("after a minute: %+v", as)
		}
		l.want("1_0", "1_1")
	})
}

// TestAReplicaThatCrashes keeps its place, waits longer each time, and gives up none of it
// to those that stand by.
func TestAReplicaThatCrashes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		id := l.serve(1, 4, 1, nil)
		var starts []time.Duration
		began := time.Now()
		for range 40 {
			ready, next := l.startable()
			if len(ready) == 0 {
				if next == 0 {
					t.Fatal("nobody waits for its time")
				}
				time.Sleep(next.Sub(cluster.TimeOf(time.Now())))
				continue
			}
			if len(ready) > 1 || ready[0].ID != id {
				t.Fatalf("%v start", ready)
			}
			starts = append(starts, time.Since(began).Round(time.Second))
			l.start(id, berth("n1", 0))
			l.say(id, cluster.JobRunning, nil)
			l.say(id, cluster.JobFailed, func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Code: 1} })
		}
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 127, 255, 511}
		for i := range want {
			want[i] *= time.Second
		}
		if !slices.Equal(starts[:len(want)], want) || starts[12]-starts[11] != 5*time.Minute {
			t.Errorf("it started at %v, want %v, and then each five minutes", starts, want)
		}
		// What ran for long starts again at once.
		time.Sleep(5 * time.Minute)
		l.start(id, berth("n1", 0))
		l.say(id, cluster.JobRunning, nil)
		time.Sleep(2 * time.Minute)
		l.say(id, cluster.JobFailed, func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Code: 1} })
		if ready, _ := l.startable(); len(ready) != 1 {
			t.Errorf("after two minutes of work it waits: %v", l.job(id).Reason)
		}
	})
}

// TestARoll puts replicas of a new revision in the place of the old ones, and never has fewer
// that take requests than are wanted; one that is sick takes nobody's place.
func TestARoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		l.serve(3, 4, 3, nil)
		l.live(5)
		l.want("1_0", "1_1", "1_2")
		second := l.serve(3, 4, 1, nil)
		l.sick[second] = "GET /healthz: 500"
		for range 40 {
			l.live(1)
			if got := l.ready(); len(got) < 3 {
				t.Fatalf("while the new revision is sick %v take requests", got)
			}
		}
		delete(l.sick, second)
		for range 60 {
			l.live(1)
			if got := l.ready(); len(got) < 3 {
				t.Fatalf("while it is rolled %v take requests", got)
			}
		}
		l.want("5_0", "5_1", "5_2")
		if left := l.f.Services(); len(left) != 1 || left[0].Throttle != 3 {
			t.Errorf("%d revisions are left: %+v", len(left), left)
		}
		for id := cluster.JobID(1); id <= 4; id++ {
			if j := l.job(id); j.State != cluster.JobCancelled || j.Reason.Code != cluster.ReasonReplaced {
				t.Errorf("old replica %d is %v: %v", id, j.State, j.Reason)
			}
		}
	})
}

// TestARollIsScaled: what a service is scaled to in the middle of a roll is what it
// has at its end.
func TestARollIsScaled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		l.serve(2, 4, 2, nil)
		l.live(5)
		second := l.serve(2, 4, 1, nil)
		l.sick[second] = "GET /healthz: 500"
		l.live(5)
		l.do(&logv1.Command{Kind: &logv1.Command_ChangeTasks{ChangeTasks: &logv1.ChangeTasks{
			Array: uint64(second), Change: logv1.TaskChange_TASK_CHANGE_THROTTLE, Throttle: 4, Scales: true,
		}}})
		l.live(1)
		if left := l.f.Services(); len(left) != 2 || left[1].Throttle != 3 || left[1].Wanted != 4 {
			t.Errorf("while a sick revision is rolled: %+v", left)
		}
		delete(l.sick, second)
		l.live(60)
		l.want("5_0", "5_1", "5_2", "5_3")
	})
}

// TestARollThatCrashes: a revision whose replicas end by themselves takes nobody's place.
func TestARollThatCrashes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		l.serve(2, 3, 2, nil)
		l.live(5)
		second := l.serve(2, 3, 1, nil)
		for range 120 {
			l.live(1)
			if a := l.job(second).Live(); a != nil && a.Started > 0 {
				l.say(second, cluster.JobFailed, func(r *logv1.ReportAttempt) { r.Exit = &logv1.Exit{Code: 1} })
			}
			if got := l.ready(); len(got) != 2 {
				t.Fatalf("%v take requests", got)
			}
		}
		l.want("1_0", "1_1")
	})
}

// TestARollWithoutRoom gives up one of several old replicas when the new one waits for half a
// minute, and never the only one.
func TestARollWithoutRoom(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			l := newTown(t)
			l.room = n
			l.loop(l.l.services)
			l.serve(n, 2, n, nil)
			l.live(5)
			l.serve(n, 2, 1, nil)
			l.live(25)
			if got := l.ready(); len(got) != n {
				t.Fatalf("before half a minute: %v", got)
			}
			l.live(90)
			if got := l.ready(); n == 1 && !slices.Equal(got, []string{"1_0"}) || n == 2 && !slices.Equal(got, []string{"3_0", "3_1"}) {
				t.Errorf("of %d: %v", n, got)
			}
		})
	}
}

// TestScaling by a number that replicas say, and by their use of GPUs: more at once, fewer
// after five minutes, those with the highest numbers first.
func TestScaling(t *testing.T) {
	t.Parallel()
	for on, target := range map[string]float64{"in_flight": 4, service.GPU: 0.5} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newTown(t)
				l.loop(l.l.services)
				id := l.serve(1, 6, 1, func(s *service.Service) { s.Scale = service.Scale{On: on, Target: target} })
				l.load = target
				l.live(60)
				l.want("1_0")
				l.load = 1.5 * target // of each: it does not fall with more replicas
				l.live(20)
				if got := len(l.ready()); got < 2 || got > 3 {
					t.Errorf("after one look %d take requests", got)
				}
				l.live(90)
				if got := len(l.ready()); got != 6 {
					t.Errorf("under load %d take requests", got)
				}
				l.load = 0.1 * target
				l.live(200)
				if got := len(l.ready()); got != 6 {
					t.Errorf("after three minutes of less load %d take requests", got)
				}
				l.live(200)
				l.want("1_0")
				if j := l.job(id + 5); j.Reason.Detail != "Replaced" && len(j.Attempts) != 1 {
					t.Errorf("the last replica: %+v", j)
				}
			})
		})
	}
}

// TestTheLoadOfTheSick counts for nothing.
func TestTheLoadOfTheSick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		id := l.serve(2, 6, 2, func(s *service.Service) { s.Scale = service.Scale{On: "in_flight", Target: 4} })
		l.load, l.sick[id+1] = 4, "sick"
		l.live(50)
		if got := l.f.Services()[0].Throttle; got != 2 {
			t.Errorf("%d are wanted", got)
		}
	})
}

// TestServicesOfTwo: users have names of their own, and each as many as they like.
func TestServicesOfTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		l.serve(1, 1, 1, nil)
		l.serveBy(2000, 1, 1, 1, nil)
		l.serve(1, 1, 1, func(s *service.Service) { s.Name = "other" })
		l.live(20)
		l.want("1_0", "2_0", "3_0")
	})
}

// TestAServiceThatSleeps: without a request it has no replica and is not worn out, the first
// one that waits starts one, and a time without any ends it; whoever leads next knows how long
// replicas took to start.
func TestAServiceThatSleeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newTown(t)
		l.loop(l.l.services)
		id := l.serve(0, 3, 0, func(s *service.Service) { s.Min, s.IdleAfter = 0, time.Minute })
		c := service.Counted{}
		tell := func(seconds int) {
			for range seconds {
				rs := l.f.Services()
				if !l.l.Heard(&rs[0], "proxy", &c) {
					t.Fatal("nobody hears the proxy")
				}
				l.live(1)
			}
		}
		tell(20)
		l.want()
		if j := l.job(id); !j.State.Waiting() || len(l.f.Services()) != 1 {
			t.Fatalf("asleep it is %v", j.State)
		}
		c.Requests, c.Waiting = 1, 1
		tell(6)
		l.want("1_0")
		c.Waiting, c.InFlight = 0, 1
		tell(90) // one long request
		l.want("1_0")
		c.InFlight = 0
		tell(50)
		l.want("1_0")
		tell(30)
		l.want()
		if v := l.l.Served(1000, "web"); v.Starts != 1 || v.ColdStart <= 0 || v.ColdStart > 10*time.Second || !v.Measured.Known {
			t.Errorf("known is %+v", v)
		}
		c.Requests, c.Waiting = 2, 1
		tell(6)
		l.want("1_0")
		l.live(300) // the proxy is gone: nobody knows who asks
		l.want("1_0")
		l.do(&logv1.Command{Kind: &logv1.Command_CancelJob{CancelJob: &logv1.CancelJob{Job: uint64(id), By: 1000}}})
		l.live(5)
	})
}

// TestAnObjective: more replicas while the proxy says that it is missed, and as replicas say
// while no proxy does.
func TestAnObjective(t *testing.T) {
	t.Parallel()
	for _, proxy := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := newTown(t)
			l.loop(l.l.services)
			l.serve(1, 4, 1, func(s *service.Service) { s.SLO = service.SLO{Percent: 95, Within: 100 * time.Millisecond} })
			c := service.Counted{}
			run := func(seconds int, took time.Duration) {
				l.load = float64(took) / float64(time.Millisecond)
				for range seconds {
					c.Requests += 10
					for range 10 {
						c.Latency.Add(took)
					}
					if rs := l.f.Services(); proxy {
						l.l.Heard(&rs[0], "proxy", &c)
					}
					l.live(1)
				}
			}
			run(60, 40*time.Millisecond)
			l.want("1_0")
			run(60, 300*time.Millisecond)
			if got := len(l.ready()); got < 2 || proxy && got > 2 {
				t.Errorf("by proxy %v: %d take requests", proxy, got)
			}
			run(180, 300*time.Millisecond)
			if got := len(l.ready()); got != 4 {
				t.Errorf("by proxy %v: %d take requests", proxy, got)
			}
			if v := l.l.Served(1000, "web").Measured; proxy && (v.Asked < 2000 || v.Within/v.Asked > 0.3) {
				t.Errorf("measured %v of %v", v.Within, v.Asked)
			}
		})
	}
}
