package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// idler is a node with a card on which a job stands idle, and a clock that goes
// on when the coordinators have looked.
type idler struct {
	t     *testing.T
	c     *coordtest.Cluster
	clock *ahead
	lead  int
	agent *coordtest.Agent
	runs  []*nodev1.Assignment // on the node
	// What the job has used by now; busy is what it uses of each step, in
	// thousandths, and pace how long a step is.
	use  *nodev1.AttemptUse
	busy int64
	pace time.Duration
	seen chan int64 // how much of the use they have looked at, as somebody listens
}

// join connects the node to whoever leads.
func (d *idler) join() {
	d.t.Helper()
	card := coordtest.T4("GPU-1")
	card.CapMode = "watch"
	d.lead = d.c.Leader()
	d.agent = d.c.Agent(d.lead, "n1", "boot1", card)
	for _, as := range d.runs {
		d.agent.Report(as, running, 0)
	}
}

// step puts the clock forward and tells what was used meanwhile.
func (d *idler) step() {
	d.clock.by.Add(int64(d.pace))
	d.use.KnownMs += d.pace.Milliseconds()
	d.use.BusyMs += d.busy * d.pace.Milliseconds()
	d.agent.Heartbeat(proto.Clone(d.use).(*nodev1.AttemptUse))
	for late := time.After(2 * time.Minute); ; {
		select {
		case known := <-d.seen:
			if known >= d.use.KnownMs {
				return
			}
		case <-d.agent.Ended: // on a busy machine leaders are lost unbidden
			d.join()
			d.agent.Heartbeat(proto.Clone(d.use).(*nodev1.AttemptUse))
		case <-late:
			d.t.Fatal("in two minutes not: the leader looks")
		}
	}
}

// until steps on until ok, at most for so long: then it has happened, and is
// only waited for.
func (d *idler) until(what string, most time.Duration, ok func() bool) {
	d.t.Helper()
	for end := d.clock.by.Load() + int64(most); !ok() && d.clock.by.Load() < end; {
		d.step()
	}
	eventually(d.t, what, ok)
}

// texts are the events of the idle policy that arrived, in order, each once.
func (r *receiver) texts() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]struct{}{}
	for _, e := range r.events {
		if _, twice := seen[e.ID]; !twice && e.Event == "idle" {
			seen[e.ID] = struct{}{}
			out = append(out, e.Job.Detail)
		}
	}
	return out
}

// TestIdleGPUsAcrossALeader follows a job that uses nothing of its GPU through a
// whole policy, of which no stage is skipped: reported and warned by one leader,
// which is killed; its share shrunk by the next, so that another job starts
// beside it; and ended.
func TestIdleGPUsAcrossALeader(t *testing.T) {
	t.Parallel()
	d := &idler{t: t, clock: &ahead{}, pace: 20 * time.Second, seen: make(chan int64)}
	rec := newReceiver(t, 0)
	d.c = coordtest.Start(t, coordtest.Options{
		N: 3, Steady: true, Clock: d.clock.now, Lease: 1000 * time.Hour, IdleEvery: time.Millisecond, IdleSeen: func(known int64) {
			select {
			case d.seen <- known:
			default:
			}
		}, Notices: notices(""),
	})
	d.join()
	cc := d.c.Dial(d.lead, "gate", "g")
	addWebhook(t, cc, &apiv1.AddWebhookRequest{Url: rec.URL, Events: "IDLE"})
	eventually(t, "the partition has its policy", func() bool {
		_, err := apirpc.NewClusterServiceClient(cc).SetPartition(as(t, admin), &apiv1.SetPartitionRequest{
			Name: "gpu", Nodes: proto.String("n1"), Default: proto.Bool(true), Idle: proto.String("below=5%,window=10m,grace=5m,warn=1h,shrink=20h,end=200h"),
		})
		return err == nil
	})
	ids := submitted(t, cc, alice, reqID(1), spec(12000), spec(10000))
	one := assigned(t, d.agent, ids[0])
	d.runs = append(d.runs, one)
	d.agent.Report(one, running, 0)
	await(t, cc, ids[0], "RUNNING")
	d.use = &nodev1.AttemptUse{Job: ids[0], Attempt: 1, PeakMib: 1000}

	d.busy = 500 // for half an hour it computes
	for range 90 {
		d.step()
	}
	if j := job(t, cc, alice, ids[0]); j.Reason != "" {
		t.Fatalf("a job that computes is %s: %s", j.Reason, j.ReasonDetail)
	}
	d.busy = 10 // 1 %
	d.until("warned", 3*time.Hour, func() bool { return len(rec.texts()) == 1 })
	if j := job(t, cc, alice, ids[0]); j.Reason != "GPUIdle" || j.State != "RUNNING" {
		t.Fatalf("warned, it is %s with %s: %s", j.State, j.Reason, j.ReasonDetail)
	}
	if j := job(t, cc, alice, ids[1]); j.State == "RUNNING" || j.State == "STARTING" {
		t.Fatalf("the other is %s, beside a share that is whole", j.State)
	}

	d.c.Kill(d.lead)
	d.agent.Silence()
	d.join()
	cc = d.c.Dial(d.lead, "gate", "g")
	d.pace = 2 * time.Minute
	var two *nodev1.Assignment
	cut := int64(0)
	d.until("the other starts beside it", 30*time.Hour, func() bool {
		for two == nil {
			select {
			case as := <-d.agent.Assigned:
				if as.Job == ids[1] {
					two = as
				} else if as.Job == ids[0] {
					if m := as.Gpus[0].MemMib; m < one.Gpus[0].MemMib {
						cut, d.pace = m, time.Second // the last stage must wait
					}
				}
				continue
			default:
			}
			break
		}
		return two != nil
	})
	d.runs = append(d.runs, two)
	d.agent.Report(two, running, 0)
	if await(t, cc, ids[1], "RUNNING").Gpus[0].Uuid != "GPU-1" {
		t.Fatal("it runs elsewhere")
	}
	if j := job(t, cc, alice, ids[0]); j.State != "RUNNING" || j.Gpus[0].Share.MemMib != 1456 || cut != 1456 {
		t.Fatalf("it holds %v and its agent was told %d, want a fifth more than 1000 MiB and 256", j.Gpus, cut)
	}

	stopped := false
	d.pace = 10 * time.Minute
	d.until("it is to stop", 250*time.Hour, func() bool {
		for {
			select {
			case as := <-d.agent.Assigned:
				stopped = stopped || as.Job == ids[0] && as.Stop
				continue
			default:
				return stopped
			}
		}
	})
	d.agent.Report(one, nodev1.AttemptState_ATTEMPT_STATE_CANCELLED, 143)
	if j := await(t, cc, ids[0], "CANCELLED"); j.Reason != "GPUIdle" || len(j.Attempts) != 1 {
		t.Fatalf("it ended with %s: %s", j.Reason, j.ReasonDetail)
	}
	if j := job(t, cc, alice, ids[1]); j.State != "RUNNING" {
		t.Fatalf("the other is %s", j.State)
	}
	eventually(t, "all stages are told", func() bool { return len(rec.texts()) >= 3 })
	for i, want := range []string{"this is a warning", "its share is cut to what it has used", "it is ended"} {
		if got := rec.texts()[i]; !strings.Contains(got, want) {
			t.Errorf("notice %d says %q, want %q", i, got, want)
		}
	}
}
