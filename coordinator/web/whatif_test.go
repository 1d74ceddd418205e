package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
	"github.com/berth-scheduler/berth/coordinator/web"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

// simulator stands in for berth-lab: each mean wait is the number of the run.
type simulator struct {
	runs    atomic.Int32
	atOnce  atomic.Int32
	last    atomic.Pointer[web.Simulation]
	holding chan struct{} // when not nil, runs wait for it
}

func (s *simulator) run(ctx context.Context, sim *web.Simulation) ([]byte, error) {
	if s.atOnce.Add(1) != 1 {
		return nil, errors.New("two run at once")
	}
	defer s.atOnce.Add(-1)
	s.last.Store(sim)
	n := s.runs.Add(1)
	if s.holding != nil {
		select {
		case <-s.holding:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return fmt.Appendf(nil, `{"read":{"rows":1,"jobs":1},"notes":["a note"],"actual":{"jobs":1,"mean_wait_s":100,"mean_jct_s":200},"results":[{"policy":%q,"jobs":1,"completed":1,"mean_wait_s":%d,"mean_jct_s":150}]}`, sim.Policy, n), nil
}

// ended has a job of alice's run and end on a card.
func ended(t *testing.T, c *coordtest.Cluster, a *coordtest.Agent, name string) {
	t.Helper()
	id := submit(t, c.Dial(0, "gate", "g"), alice, spec(name))[0]
	asg := <-a.Assigned
	a.Report(asg, nodev1.AttemptState_ATTEMPT_STATE_RUNNING, 0)
	a.Report(asg, nodev1.AttemptState_ATTEMPT_STATE_COMPLETED, 0)
	v := visit(t, c, 0, alice)
	for { // its end is in the history once the log has it
		if _, got := v.do("POST", "/api/HistoryService/ListHistory", fmt.Sprintf(`{"filter":{"ids":["%d"]}}`, id)); strings.Contains(got, `"COMPLETED"`) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (v *visitor) compare(body string) (out struct {
	Jobs            int
	Actual          *struct{ Mean float64 }
	InForce, Chosen *struct {
		Policy string
		Wait   float64 `json:"mean_wait_s"`
	}
}) {
	v.t.Helper()
	resp, got := v.do("POST", "/api/whatif", body)
	if resp.StatusCode != 200 {
		v.t.Fatalf("%s: %s %s", body, resp.Status, got)
	}
	if err := json.Unmarshal([]byte(got), &out); err != nil {
		v.t.Fatal(err)
	}
	return out
}

// TestWhatIf: the last days are handed to the simulator as the user gets them, each
// simulation runs once, and what makes no sense is refused in words before any runs.
func TestWhatIf(t *testing.T) {
	t.Parallel()
	sim := &simulator{}
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true, Simulate: sim.run})
	a := c.Agent(0, "n1", "b1", coordtest.T4("GPU-1"))
	v := visit(t, c, 0, bob)
	const path = "/api/whatif"
	for body, words := range map[string]string{
		`{"days":0}`:                         "want 1 to 366",
		`{"days":1000000000}`:                "want 1 to 366",
		`{"days":-1}`:                        "want 1 to 366",
		`{"days":1e30}`:                      "not a comparison",
		`{"days":1,"shares":17}`:             "want 1 to 16",
		`{"days":1,"shares":-1}`:             "want 1 to 16",
		`{"days":1,"policy":"best"}`:         "the policies are bestfit",
		`{"days":1,"policy":"ffd+best"}`:     "the orders are",
		`{"days":1,"policy":"--trace=/etc"}`: "not known",
		`{"days":1,"capture":"/etc/passwd"}`: "unknown field",
		`[]`:                                 "not a comparison",
	} {
		v.wants(400, words, "POST", path, body)
	}
	v.wants(403, "token", "POST", path, `{"days":1}`, with("Berth-Token", ""))
	if got := v.compare(`{"days":1}`); got.Jobs != 0 || got.Actual != nil || sim.runs.Load() != 0 {
		t.Errorf("without any job: %+v after %d runs", got, sim.runs.Load())
	}
	ended(t, c, a, "hers")
	v.wants(200, `"inForce":"ffd"`, "GET", path, "")
	if got := v.compare(`{"days":1}`); got.Jobs != 1 || got.InForce.Wait != 1 || got.Chosen.Wait != 1 || got.Chosen.Policy != "ffd" {
		t.Errorf("the policy in force: %+v", got)
	}
	if got := v.compare(`{"days":1,"policy":"slot+sjf","shares":2}`); got.InForce.Wait != 1 || got.Chosen.Wait != 2 || got.Chosen.Policy != "slot+sjf" || sim.last.Load().MaxShares != 2 {
		t.Errorf("another one: %+v", got)
	}
	if got := visit(t, c, 0, alice).compare(`{"days":3,"policy":"slot+sjf","shares":2}`); got.Chosen.Wait != 2 || sim.runs.Load() != 2 {
		t.Errorf("what others asked, of the same jobs: %+v after %d runs", got, sim.runs.Load())
	}
	answers(t, sim.last.Load().Answers, 1)
	ended(t, c, a, "hers again")
	if got := v.compare(`{"days":1}`); got.Jobs != 2 || got.InForce.Wait != 3 {
		t.Errorf("after another job ended: %+v", got)
	}
	without := coordtest.Start(t, coordtest.Options{N: 1, Web: true})
	visit(t, without, 0, alice).wants(503, "runs no simulator", "POST", path, `{"days":1}`)
}

// answers reads what the simulator gets: nodes, and jobs without names and commands.
func answers(t *testing.T, data []byte, jobs int) {
	t.Helper()
	if bytes.Contains(data, []byte("hers")) || bytes.Contains(data, []byte("secret")) || bytes.Contains(data, []byte("GPU-1")) {
		t.Errorf("the simulator gets names or commands: %q", data)
	}
	in := bytes.NewReader(data)
	var st apiv1.GetStatusResponse
	var nodes apiv1.ListNodesResponse
	var list apiv1.ListHistoryResponse
	if err := errors.Join(protodelim.UnmarshalFrom(in, &st), protodelim.UnmarshalFrom(in, &nodes), protodelim.UnmarshalFrom(in, &list)); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Nodes) != 1 || len(nodes.Nodes[0].Gpus) != 1 || len(list.Jobs) != jobs || list.Jobs[0].GetEnded() == nil || list.Jobs[0].Attempts[0].GetGpus()[0].GetShare().GetMemMib() == 0 {
		t.Errorf("the simulator gets %v %v", &nodes, &list)
	}
}

// TestWhatIfInTurn: one simulation runs at a time whoever asks, so many wait for a turn and
// nobody twice.
func TestWhatIfInTurn(t *testing.T) {
	t.Parallel()
	sim := &simulator{holding: make(chan struct{})}
	c := coordtest.Start(t, coordtest.Options{N: 1, Web: true, Simulate: sim.run})
	ended(t, c, c.Agent(0, "n1", "b1", coordtest.T4("GPU-1")), "hers")
	const users = 9 // of whom one runs, and seven wait
	got := make(chan int, users)
	ask := func(v *visitor, policy string) {
		resp, _ := v.do("POST", "/api/whatif", fmt.Sprintf(`{"days":1,"policy":%q}`, policy))
		got <- resp.StatusCode
	}
	hers := visit(t, c, 0, alice)
	go ask(hers, "ffd")
	for sim.runs.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	hers.wants(429, "still running", "POST", "/api/whatif", `{"days":1}`)
	for k := range uint32(users - 1) {
		go ask(visit(t, c, 0, bob+k), "slot")
	}
	if code := <-got; code != 429 {
		t.Errorf("the first answer is %d: want that of the one for whom there is no place", code)
	}
	close(sim.holding)
	for range users - 1 {
		if code := <-got; code != 200 {
			t.Errorf("answered %d", code)
		}
	}
	if n := sim.runs.Load(); n != 2 {
		t.Errorf("%d simulations, want one for each policy", n)
	}
}
