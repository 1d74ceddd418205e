package service_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cluster/service"
)

var _ = draws.Fixed()

func web() *service.Service {
	return &service.Service{
		Name: "web", Replicas: 2, Min: 1, Max: 4, Port: "http", Health: "/healthz", Every: 2 * time.Second, Fails: 3, StartWithin: time.Minute, Drain: 10 * time.Second,
	}
}

// TestWhatIsNoService: each fault is named.
func TestWhatIsNoService(t *testing.T) {
	t.Parallel()
	if err := web().Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*service.Service){
		`name ""`:                           func(s *service.Service) { s.Name = "" },
		`name "Web"`:                        func(s *service.Service) { s.Name = "Web" },
		`name "web-"`:                       func(s *service.Service) { s.Name = "web-" },
		`name "a\nb"`:                       func(s *service.Service) { s.Name = "a\nb" },
		"replicas: 0 is outside 1 to 256":   func(s *service.Service) { s.Max = 0 },
		"replicas: 257 is outside":          func(s *service.Service) { s.Max = 257 },
		"replicas: 5-4 is not a range":      func(s *service.Service) { s.Min = 5 },
		"replicas: 9 is outside 1-4":        func(s *service.Service) { s.Replicas = 9 },
		`port "80"`:                         func(s *service.Service) { s.Port = "80" },
		`health "healthz"`:                  func(s *service.Service) { s.Health = "healthz" },
		`health "/a b"`:                     func(s *service.Service) { s.Health = "/a b" },
		`health "/`:                         func(s *service.Service) { s.Health = "/" + strings.Repeat("x", 300) },
		"health every 1ms":                  func(s *service.Service) { s.Every = time.Millisecond },
		"health every 2h0m0s":               func(s *service.Service) { s.Every = 2 * time.Hour },
		"health fails: 0":                   func(s *service.Service) { s.Fails = 0 },
		"start within 0s":                   func(s *service.Service) { s.StartWithin = 0 },
		"start within 25h0m0s":              func(s *service.Service) { s.StartWithin = 25 * time.Hour },
		"drain -1s":                         func(s *service.Service) { s.Drain = -time.Second },
		"idle after 0s: is outside":         func(s *service.Service) { s.Min = 0 },
		"idle after: is of a service":       func(s *service.Service) { s.IdleAfter = time.Minute },
		"slo: p98 is none":                  func(s *service.Service) { s.SLO = service.SLO{Percent: 98, Within: time.Second} },
		"slo: the time is outside":          func(s *service.Service) { s.SLO = service.SLO{Percent: 99, Within: time.Hour} },
		"scale_on: has nothing":             func(s *service.Service) { s.Min, s.Max, s.Scale = 2, 2, service.Scale{On: "gpu", Target: 0.5} },
		`scale_on: ""`:                      func(s *service.Service) { s.Scale = service.Scale{Target: 1} },
		"scale_on: a target of 0":           func(s *service.Service) { s.Scale = service.Scale{On: "x"} },
		"scale_on: a target of NaN":         func(s *service.Service) { s.Scale = service.Scale{On: "x", Target: math.NaN()} },
		"scale_on: a target of +Inf":        func(s *service.Service) { s.Scale = service.Scale{On: "x", Target: math.Inf(1)} },
		"scale_on: a target of 1.5 is none": func(s *service.Service) { s.Scale = service.Scale{On: service.GPU, Target: 1.5} },
	} {
		s := web()
		change(s)
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if a, b := web().Bytes(), (*service.Service)(nil).Bytes(); a < 192 || b != 0 {
		t.Errorf("%d and %d bytes", a, b)
	}
}

// TestText: what commands and people read.
func TestText(t *testing.T) {
	t.Parallel()
	got := service.Fill([]string{"serve", "--port={port}", "{port}{port}"}, 8080)
	if !slices.Equal(got, []string{"serve", "--port=8080", "80808080"}) {
		t.Errorf("%q", got)
	}
	if a, b, c := (service.Scale{}).String(), (service.Scale{On: "gpu", Target: 0.7}).String(), (service.Scale{On: "in_flight", Target: 4}).String(); a != "" || b != "gpu=70%" || c != "in_flight=4" {
		t.Errorf("%q %q %q", a, b, c)
	}
	if a, b := service.Draining.String(), service.State(9).String(); a != "draining" || b != "state 9" {
		t.Errorf("%q %q", a, b)
	}
	for soon, want := range map[int]time.Duration{-1: 0, 0: 0, 1: time.Second, 4: 8 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 99: 5 * time.Minute} {
		if got := service.Backoff(soon); got != want {
			t.Errorf("after %d: %v, want %v", soon, got, want)
		}
	}
}

// site is a world in which what is planned is done: replicas come up or do not, end by
// themselves, and are ended.
type site struct {
	s    *service.Service
	now  time.Duration
	want int
	revs []*revision
	room int
	// fault is what was planned against the rules, "" for nothing.
	fault string
}

type revision struct {
	id    uint64
	want  int
	sick  bool
	begun map[uint32]bool
	over  map[uint32]bool
	since time.Duration
	live  map[uint32]*service.Replica
}

func (w *site) add(id uint64, want int, sick bool) {
	w.revs = append(w.revs, &revision{id: id, want: want, sick: sick, since: w.now, begun: map[uint32]bool{}, over: map[uint32]bool{}, live: map[uint32]*service.Replica{}})
}

func (w *site) running() (n int) {
	for _, r := range w.revs {
		n += len(r.live)
	}
	return n
}

func (w *site) ready() (n int) {
	for _, r := range w.revs {
		for _, l := range r.live {
			if l.Serving.State == service.Ready && !l.Ending {
				n++
			}
		}
	}
	return n
}

// step lets a second pass: the planned is done, what may start does.
func (w *site) step() []service.Action {
	var revs []service.Revision
	for _, r := range w.revs {
		v := service.Revision{ID: r.id, Want: r.want, Waiting: len(r.over)+len(r.live) < w.s.Max, Since: r.since}
		for task := range uint32(w.s.Max) {
			if l := r.live[task]; l != nil {
				v.Live = append(v.Live, *l)
			}
		}
		revs = append(revs, v)
	}
	actions := service.Plan(w.s, w.want, revs, w.now)
	for _, a := range actions {
		w.do(a)
	}
	w.revs = slices.DeleteFunc(w.revs, func(r *revision) bool { return len(r.over) == w.s.Max })
	for _, r := range w.revs {
		for task := range uint32(w.s.Max) {
			l := r.live[task]
			switch {
			case l == nil && !r.over[task] && len(r.live) < r.want && w.running() < w.room:
				r.live[task] = &service.Replica{Task: task, Started: w.now}
			case l != nil && l.Ending:
				delete(r.live, task)
				r.since = w.now
			case l != nil && r.sick:
				fails := 1
				if l.Probe != nil {
					fails += l.Probe.Fails
				}
				l.Probe = &service.Probe{Fails: fails, Why: "sick"}
			case l != nil:
				l.Probe = &service.Probe{OK: true}
			}
		}
	}
	w.now += time.Second
	return actions
}

func (w *site) do(a service.Action) {
	for _, r := range w.revs {
		if r.id != a.Revision {
			continue
		}
		l := r.live[a.Task]
		if l != nil && (a.Kind == service.Restart || a.Kind == service.End) && l.Serving.State == service.Draining && w.now-l.Serving.Since < w.s.Drain {
			w.fault = fmt.Sprintf("replica %d of %d ends %v after it was drained", a.Task, a.Revision, w.now-l.Serving.Since)
		}
		switch a.Kind {
		case service.Note:
			l.Serving = service.Serving{State: a.State, Since: w.now, Why: a.Why}
		case service.Restart:
			l.Ending = true
		case service.End:
			l.Ending = true
			r.over[a.Task] = true
		case service.EndWaiting:
			for task := range uint32(w.s.Max) {
				if r.live[task] == nil {
					r.over[task] = true
				}
			}
		case service.SetWant:
			r.want = a.Want
		}
	}
}

// TestRolls: whatever is rolled and scaled in whatever order, there are never fewer that take
// requests than are wanted while there is room for one more, never more than one more than
// that are there for long, and in the end there are just as many, of the newest revision
// that is not sick.
func TestRolls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := web()
		s.Drain = time.Duration(rapid.IntRange(0, 5).Draw(t, "drain")) * time.Second
		w := &site{s: s, now: time.Hour, room: 100}
		w.want = rapid.IntRange(1, s.Max).Draw(t, "want")
		w.add(1, w.want, false)
		for range 5 {
			w.step()
		}
		least := w.want
		if w.ready() != least {
			t.Fatalf("%d are ready of %d", w.ready(), least)
		}
		for id := range uint64(rapid.IntRange(1, 3).Draw(t, "revisions")) {
			sick := rapid.Bool().Draw(t, "sick")
			s.Replicas = w.want
			w.add(id+2, 1, sick)
			for range rapid.IntRange(0, 100).Draw(t, "seconds") {
				w.step()
				if w.ready() < least {
					t.Fatalf("%d take requests, and %d did", w.ready(), least)
				}
				stay := 0
				for _, r := range w.revs {
					for _, l := range r.live {
						if !l.Ending && l.Serving.State != service.Draining {
							stay++
						}
					}
				}
				if stay > least+1+len(w.revs) {
					t.Fatalf("%d are there for %d", stay, least)
				}
			}
		}
		w.add(9, 1, false)
		for range 200 {
			w.step()
			if w.ready() < least {
				t.Fatalf("at the end %d take requests, and %d did", w.ready(), least)
			}
		}
		if len(w.revs) != 1 || w.revs[0].id != 9 || w.ready() != w.want || w.revs[0].want != w.want {
			t.Fatalf("in the end %d of %d are ready, in %d revisions", w.ready(), w.want, len(w.revs))
		}
		// Fewer are wanted, then more.
		for _, n := range []int{1, s.Max} {
			w.want = n
			for range 20 {
				w.step()
			}
			if w.ready() != n || w.running() != n {
				t.Fatalf("%d run and %d are ready of %d", w.running(), w.ready(), n)
			}
		}
		if w.fault != "" {
			t.Fatal(w.fault)
		}
		if a := w.step(); len(a) != 0 {
			t.Fatalf("at rest there is to do: %v", a)
		}
	})
}

// TestNoRevisions: nothing is nothing to do.
func TestNoRevisions(t *testing.T) {
	t.Parallel()
	if got := service.Plan(web(), 2, nil, time.Hour); got != nil {
		t.Errorf("%v", got)
	}
}

// TestScaler by hand: at once more, twice at most, fewer after five minutes, and nothing of
// loads that are none.
func TestScaler(t *testing.T) {
	t.Parallel()
	s := web()
	s.Max, s.Scale = 8, service.Scale{On: "q", Target: 10}
	now := time.Hour
	var c service.Scaler
	next := func(after time.Duration, have int, loads ...float64) int {
		now += after
		return c.Next(s, have, &service.Seen{Ready: have, Loads: loads}, now)
	}
	for i, x := range []struct {
		after time.Duration
		have  int
		loads []float64
		want  int
	}{
		{0, 2, nil, 2}, {time.Minute, 2, []float64{10, 10}, 2}, {time.Minute, 2, []float64{11, 10.9}, 2}, // within a tenth
		{time.Minute, 2, []float64{15, 15}, 3}, {time.Second, 2, []float64{90, 90}, 2}, // too soon
		{time.Minute, 2, []float64{90, 90}, 4}, {time.Minute, 4, []float64{90, math.NaN(), -1, math.Inf(1)}, 8}, // of one of which the load is known
		{time.Minute, 8, []float64{1e300}, 8}, {time.Minute, 8, []float64{1}, 8}, {4 * time.Minute, 8, []float64{40}, 8},
		{time.Minute, 8, []float64{1}, 4}, {4 * time.Minute, 4, []float64{1}, 4}, {time.Minute, 4, []float64{1}, 1},
	} {
		if got := next(x.after, x.have, x.loads...); got != x.want {
			t.Errorf("step %d: %d, want %d", i, got, x.want)
		}
	}
	var fresh service.Scaler // a new leader's
	if got := fresh.Next(s, 4, &service.Seen{Ready: 4, Loads: []float64{1}}, now); got != 4 {
		t.Errorf("at the first look: %d", got)
	}
	s.Scale = service.Scale{}
	if got := next(time.Hour, 3, 99); got != 3 {
		t.Errorf("without a target: %d", got)
	}
}

func ExampleService_Check() {
	s := web()
	s.Name = "My Service"
	fmt.Println(s.Check())
	// Output: name "My Service": want 1 to 63 of a to z, 0 to 9 and -, a letter first
}
