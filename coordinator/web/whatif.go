package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/web/session"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

// Limits on what the page "What if" may ask for.
const (
	mostDays    = 366
	mostShares  = 16
	mostQueued  = 8                // waiting for a turn
	simTime     = 60 * time.Second // one simulation
	gatherTime  = 30 * time.Second
	queueTime   = 2 * time.Minute
	mostResults = 64 // kept
)

// Simulation is one run of the simulator: by which policy, with how many jobs per
// GPU, 0 for each GPU's own limit, over the answers that "berth sim what-if" reads.
type Simulation struct {
	Policy    string
	MaxShares int
	Answers   []byte
}

// whatIf runs one simulation at a time, for all users of the page, and caches the
// last results by all their inputs: no user gets what follows from answers that
// another user got.
type whatIf struct {
	turn chan struct{}

	mu     sync.Mutex
	queued map[cluster.UID]struct{}
	kept   map[[sha256.Size]byte]*simulated
	order  [][sha256.Size]byte // of the cache, the oldest first
}

func newWhatIf() *whatIf {
	return &whatIf{turn: make(chan struct{}, 1), queued: map[cluster.UID]struct{}{}, kept: map[[sha256.Size]byte]*simulated{}}
}

// comparison is what the page asks for. An empty policy is the current one, as 0
// shares are; a policy may be placement+order.
type comparison struct {
	Policy string `json:"policy"`
	Shares int    `json:"shares"`
	Days   int    `json:"days"`
}

func (c *comparison) check() error {
	switch {
	case c.Days < 1 || c.Days > mostDays:
		return cluster.Errorf(cluster.CodeInvalid, "days: %d, want 1 to %d", c.Days, mostDays)
	case c.Shares < 0 || c.Shares > mostShares:
		return cluster.Errorf(cluster.CodeInvalid, "shares: %d, want 1 to %d jobs per GPU; 0 keeps the current setting", c.Shares, mostShares)
	case c.Policy == "":
		return nil
	}
	_, err := policies.New(c.Policy, policies.Options{})
	return err
}

// figures are those of one schedule, in seconds and per cent; nil is unknown.
type figures struct {
	Policy         string   `json:"policy,omitempty"`
	Jobs           int      `json:"jobs"`
	Completed      int      `json:"completed,omitempty"`
	MeanWait       *float64 `json:"mean_wait_s"`
	MedianWait     *float64 `json:"median_wait_s"`
	P90Wait        *float64 `json:"p90_wait_s"`
	MeanJCT        *float64 `json:"mean_jct_s"`
	Makespan       *float64 `json:"makespan_s"`
	GPUUtilPct     *float64 `json:"gpu_util_pct"`
	AllocationPct  *float64 `json:"allocation_pct"`
	ReservedMemPct *float64 `json:"reserved_mem_pct"`
	OOMs           int      `json:"ooms,omitempty"`
}

// simulated is the simulator's output, as far as the page shows it.
type simulated struct {
	Notes   []string   `json:"notes"`
	Actual  *figures   `json:"actual"`
	Results []*figures `json:"results"`
	Read    struct {
		Rows int `json:"rows"`
		Jobs int `json:"jobs"`
	} `json:"read"`
}

// compared is the answer to a comparison. Without jobs there are no figures.
type compared struct {
	Days       int      `json:"days"`
	Jobs       int      `json:"jobs"` // that ended in these days
	Replayed   int      `json:"replayed"`
	Cut        bool     `json:"cut"`        // older ones were left out
	Incomplete bool     `json:"incomplete"` // part of the history is not here yet
	Shares     int      `json:"shares"`
	Actual     *figures `json:"actual,omitempty"`
	InForce    *figures `json:"inForce,omitempty"`
	Chosen     *figures `json:"chosen,omitempty"`
	Notes      []string `json:"notes,omitempty"`
	TookMS     int64    `json:"tookMs"`
}

// choices returns what may be asked for.
func (s *Server) choices(w http.ResponseWriter, r *http.Request, sess *session.Session) {
	ctx, cancel := context.WithTimeout(r.Context(), gatherTime)
	defer cancel()
	st, oldest, err := s.reach(ctx, sess.User)
	if err != nil {
		fail(w, err)
		return
	}
	days := 1
	if !oldest.IsZero() {
		days = min(mostDays, max(1, int(math.Ceil(st.GetNow().AsTime().Sub(oldest).Hours()/24))))
	}
	answer(w, map[string]any{
		"policies": policies.Names(), "orders": policies.Orders(), "inForce": st.GetPolicy(), "shares": st.GetMaxShares(),
		"mostShares": mostShares, "days": days, "ready": s.cfg.Simulate != nil,
	})
}

// compare replays the last days under the current policy and the requested one.
func (s *Server) compare(w http.ResponseWriter, r *http.Request, sess *session.Session) {
	var c comparison
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(&c)
	if err != nil {
		err = cluster.Errorf(cluster.CodeInvalid, "the request is not a comparison: %v", err)
	} else if err = c.check(); err == nil && s.cfg.Simulate == nil {
		err = cluster.Errorf(cluster.CodeUnavailable, "coordinator %s runs no simulator", s.cfg.ID)
	}
	if err != nil {
		fail(w, err)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(queueTime + gatherTime + 2*simTime + answerTime/2))
	done, err := s.whatIf.begin(r.Context(), sess.User.UID)
	if err != nil {
		fail(w, err)
		return
	}
	defer done()
	got, err := s.replay(r.Context(), sess.User, &c)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, got)
}

// begin waits for a turn. A user with a comparison in progress gets no second one.
func (f *whatIf) begin(ctx context.Context, uid cluster.UID) (done func(), err error) {
	f.mu.Lock()
	_, mine := f.queued[uid]
	n := len(f.queued)
	if !mine && n < mostQueued {
		f.queued[uid] = struct{}{}
	}
	f.mu.Unlock()
	switch {
	case mine:
		return nil, cluster.Errorf(cluster.CodeExhausted, "a comparison of yours is still running; wait for it")
	case n >= mostQueued:
		return nil, cluster.Errorf(cluster.CodeExhausted, "%d comparisons are already waiting, and one runs at a time; try again later", n)
	}
	leave := func() {
		f.mu.Lock()
		delete(f.queued, uid)
		f.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	select {
	case f.turn <- struct{}{}:
		return func() { <-f.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, cluster.Errorf(cluster.CodeUnavailable, "other comparisons took %s; one runs at a time: try again", queueTime)
	}
}

func (s *Server) replay(ctx context.Context, u session.User, c *comparison) (*compared, error) {
	began := time.Now()
	in, err := s.gather(ctx, u, time.Duration(c.Days)*24*time.Hour)
	if err != nil {
		return nil, err
	}
	out := &compared{Days: c.Days, Jobs: in.jobs, Cut: in.cut, Incomplete: in.incomplete, Shares: c.Shares}
	if in.jobs == 0 {
		return out, nil
	}
	now, err := s.simulate(ctx, &Simulation{Policy: in.policy, Answers: in.answers})
	if err != nil {
		return nil, err
	}
	then, policy := now, c.Policy
	policy = cmp.Or(policy, in.policy)
	if policy != in.policy || c.Shares != 0 {
		if then, err = s.simulate(ctx, &Simulation{Policy: policy, MaxShares: c.Shares, Answers: in.answers}); err != nil {
			return nil, err
		}
	}
	out.Actual, out.InForce, out.Chosen = now.Actual, now.Results[0], then.Results[0]
	out.Replayed, out.Notes, out.TookMS = now.Read.Jobs, now.Notes, time.Since(began).Milliseconds()
	return out, nil
}

// simulate runs a simulation, unless its result is cached.
func (s *Server) simulate(ctx context.Context, sim *Simulation) (*simulated, error) {
	key := sha256.Sum256(append(fmt.Appendf(nil, "%q %d ", sim.Policy, sim.MaxShares), sim.Answers...))
	s.whatIf.mu.Lock()
	got := s.whatIf.kept[key]
	s.whatIf.mu.Unlock()
	if got != nil {
		return got, nil
	}
	ctx, cancel := context.WithTimeout(ctx, simTime)
	defer cancel()
	data, err := s.cfg.Simulate(ctx, sim)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, cluster.Errorf(cluster.CodeUnavailable, "the simulation by %s took more than %s; ask for fewer days", sim.Policy, simTime)
	}
	if err != nil {
		return nil, err
	}
	got = &simulated{}
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(got); err != nil || len(got.Results) != 1 || got.Results[0] == nil {
		return nil, cluster.Errorf(cluster.CodeUnavailable, "the simulator did not answer with figures (%v); it must have the coordinator's version", err)
	}
	s.whatIf.keep(key, got)
	return got, nil
}

func (f *whatIf) keep(key [sha256.Size]byte, got *simulated) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.order) == mostResults {
		delete(f.kept, f.order[0])
		f.order = slices.Delete(f.order, 0, 1)
	}
	f.kept[key], f.order = got, append(f.order, key)
}
