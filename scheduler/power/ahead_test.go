package power

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/dispatch"
	"github.com/berth-scheduler/berth/scheduler/schedtest"
)

// ahead is a rule that forecasts for two hours, of what it knows for an hour.
func ahead(spare int) *Rule {
	return &Rule{Idle: 20 * time.Minute, ResumeTimeout: 5 * time.Minute, AtOnce: 100, Forecast: &Forecast{Every: slot, Horizon: 2 * time.Hour, Learn: time.Hour, SparePercent: spare}}
}

// fleet is so many nodes of one kind, the last of which are off.
func fleet(at cluster.Time, nodes, off int) *dispatch.Snapshot {
	s := &dispatch.Snapshot{Now: at, Queues: map[cluster.GPUID][]dispatch.Waiter{}}
	for i := range nodes {
		n := schedtest.Node(cluster.NodeID(fmt.Sprintf("n%02d", i+1)), 1, "T4")
		if i >= nodes-off {
			n.State, n.Power.State = cluster.NodeUnreachable, cluster.PoweredDown
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// holding has jobs run on the first nodes.
func holding(s *dispatch.Snapshot, nodes int) *dispatch.Snapshot {
	for i := range nodes {
		s.Running = append(s.Running, running(cluster.JobID(i+1), s.Nodes[i].ID))
	}
	return s
}

// heldBefore is that so many nodes were held for a day before now.
func heldBefore(k *Keeper, r *Rule, snap *dispatch.Snapshot, nodes int) {
	var spans []Span
	for i := range nodes {
		spans = append(spans, Span{Node: snap.Nodes[i].ID, Kind: "1xT4", From: snap.Now.Add(-day), To: snap.Now.Add(-time.Second)})
	}
	k.Recall(snap, r, spans, snap.Now.Add(-day))
}

// TestKeepsWhatIsForecast by hand: of 20 nodes that are idle as many stay up as were needed of
// late and two to spare, and when those that are up are fewer than that all of these are woken.
func TestKeepsWhatIsForecast(t *testing.T) {
	t.Parallel()
	gang := schedtest.Job(99, schedtest.Nodes(4))
	for name, c := range map[string]struct {
		held, off, runs int
		change          func(*dispatch.Snapshot, *Rule)
		down, up        int
		says            string
	}{
		"what was needed stays up":             {8, 0, 0, nil, 10, 0, "of 20 nodes with 1xT4, 20 are up and 0 needed; 10 stay up: at most 8 are forecast to be needed within 2h0m0s, and 2 are to spare"},
		"nothing was":                          {0, 0, 0, nil, 18, 0, "2 stay up: at most 0"},
		"more is needed now":                   {3, 0, 9, nil, 9, 0, "9 needed; 11 stay up"},
		"no more than there are":               {20, 0, 0, nil, 0, 0, "20 stay up: at most 20"},
		"too few are up":                       {8, 14, 0, nil, 0, 4, "of 20 nodes with 1xT4, 6 are up"},
		"half of those to spare may be off":    {8, 13, 0, nil, 0, 0, "of 20 nodes with 1xT4, 7 are up"},
		"those to spare may be used up":        {8, 11, 8, nil, 0, 0, "9 are up and 8 needed"},
		"and are woken when they are":          {8, 12, 9, nil, 0, 3, "8 are up and 9 needed; 11 stay up"},
		"a job waits for four nodes":           {8, 0, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Waiting = []*cluster.Job{gang} }, 0, 0, "none is powered down while a job waits for 4 nodes"},
		"then as many are to spare":            {8, 14, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Waiting = []*cluster.Job{gang} }, 0, 6, "none is powered down"},
		"too little is known":                  {8, 0, 0, func(_ *dispatch.Snapshot, r *Rule) { r.Forecast.Learn = 25 * time.Hour }, 20, 0, "too little is known of demand"},
		"then nobody is woken either":          {8, 13, 0, func(_ *dispatch.Snapshot, r *Rule) { r.Forecast.Learn = 25 * time.Hour }, 7, 0, "too little is known of demand"},
		"idle ones are to stay besides":        {8, 0, 0, func(_ *dispatch.Snapshot, r *Rule) { r.KeepIdle = 15 }, 5, 0, "10 stay up"},
		"one that an administrator powered":    {8, 14, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Nodes[19].Power.Asked = true }, 0, 4, "of 19 nodes with 1xT4, 6 are up"},
		"down is none to wake":                 {20, 13, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Nodes[19].Power.Asked = true }, 0, 12, "19 stay up"},
		"reserved nodes are for those alone":   {8, 13, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Reservations = open("n[08-20]") }, 0, 13, "of 7 nodes with 1xT4, 7 are up"},
		"excluded nodes are not looked at":     {8, 0, 0, func(_ *dispatch.Snapshot, r *Rule) { r.Exclude = list("n[01-05]") }, 5, 0, "of 15 nodes with 1xT4, 15 are up"},
		"coming up counts as up":               {8, 14, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Nodes[8].Power.State = cluster.PoweringUp }, 0, 0, "of 20 nodes with 1xT4, 7 are up"},
		"drained ones are none that jobs have": {8, 0, 0, func(s *dispatch.Snapshot, _ *Rule) { s.Nodes[0].Drain = true }, 9, 0, "of 19 nodes with 1xT4, 19 are up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var k Keeper
			r := ahead(10)
			r.Idle = time.Minute
			before := fleet(base, 20, c.off)
			if c.change != nil {
				c.change(before, r)
			}
			heldBefore(&k, r, before, c.held)
			for _, after := range []time.Duration{0, time.Minute} {
				snap := holding(fleet(base.Add(after), 20, c.off), c.runs)
				if c.change != nil {
					c.change(snap, r)
				}
				k.Look(snap, r, nil)
				if up := k.Up(snap, r, nil); after == 0 && len(up) != c.up {
					t.Errorf("%v are powered up, want %d", up, c.up)
				}
				if down := k.Down(snap, r); after > 0 && len(down) != c.down || after == 0 && len(down) > 0 {
					t.Errorf("after %s %d are powered down, want %d: %v", after, len(down), c.down, down)
				}
				if o := k.Outlook("n06"); after == 0 && !strings.Contains(o.String(), c.says) {
					t.Errorf("it says %q, want %q", o, c.says)
				}
			}
		})
	}
}

func list(text string) cluster.HostList {
	h, err := cluster.ParseHostList(text)
	if err != nil {
		panic(err)
	}
	return h
}

func open(nodes string) dispatch.Reservations {
	return dispatch.Reservations{{Name: "r", Start: base.Add(-time.Hour), Duration: 10 * time.Hour, Nodes: list(nodes)}}
}

// TestEnoughStaysUp: whatever happens, of each kind of which enough is known as many stay up as
// are needed, forecast and to spare; nothing goes down while a job waits for several nodes, what
// is woken is off, is not more than was missing, and comes after what who waits needs.
func TestEnoughStaysUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := ahead(rapid.IntRange(0, 40).Draw(t, "spare"))
		r.AtOnce, r.KeepIdle = rapid.IntRange(1, 8).Draw(t, "at once"), rapid.IntRange(0, 2).Draw(t, "keep")
		var k Keeper
		states := make([]cluster.PowerState, 8)
		kindOf := func(i int) string { return []string{"T4", "V100"}[i/5] }
		var level [2][]int // of the slots
		for look := range rapid.IntRange(1, 30).Draw(t, "looks") {
			snap := &dispatch.Snapshot{Now: base.Add(time.Duration(look) * slot), Queues: map[cluster.GPUID][]dispatch.Waiter{}}
			up, need := [2]int{}, [2]int{}
			for i, s := range states {
				n := schedtest.Node(cluster.NodeID(fmt.Sprint("n", i+1)), 1, kindOf(i))
				if s == cluster.PowerUp && rapid.IntRange(0, 2).Draw(t, "runs") == 0 {
					snap.Running = append(snap.Running, running(cluster.JobID(i+1), n.ID))
					need[i/5]++
				}
				if n.Power.State = s; s != cluster.PowerUp {
					n.State = cluster.NodeUnreachable
				}
				if s != cluster.PoweredDown {
					up[i/5]++
				}
				snap.Nodes = append(snap.Nodes, n)
			}
			if rapid.IntRange(0, 9).Draw(t, "gang") == 0 {
				snap.Waiting = []*cluster.Job{schedtest.Job(99, schedtest.Nodes(2))}
			}
			used := map[cluster.NodeID]struct{}{}
			for i, n := range snap.Nodes { // somebody would start there
				if busy := slices.ContainsFunc(snap.Running, func(j *cluster.Job) bool { return j.ID == cluster.JobID(i+1) }); !busy && rapid.IntRange(0, 9).Draw(t, "planned") == 0 {
					used[n.ID] = struct{}{}
					need[i/5]++
				}
			}
			k.Look(snap, r, used)
			var wake []cluster.NodeID
			for i, s := range states {
				if s == cluster.PoweredDown && rapid.IntRange(0, 5).Draw(t, "waits") == 0 {
					wake = append(wake, cluster.NodeID(fmt.Sprint("n", i+1)))
				}
			}
			gotUp, gotDown := k.Up(snap, r, wake), k.Down(snap, r)
			if len(gotUp) > r.AtOnce || len(gotDown) > r.AtOnce || len(gotDown) > 0 && len(snap.Waiting) > 0 {
				t.Fatalf("up %v, down %v while %d wait", gotUp, gotDown, len(snap.Waiting))
			}
			if w := min(len(wake), r.AtOnce); !slices.Equal(gotUp[:w], wake[:w]) {
				t.Fatalf("%v are woken, and %v waited for", gotUp, wake)
			}
			for kind := range level {
				level[kind] = append(level[kind], need[kind])
				o := k.Outlook(cluster.NodeID(fmt.Sprint("n", 1+5*kind)))
				if o.Known != (look >= 6) || o.Up != up[kind] || o.Needed != need[kind] {
					t.Fatalf("look %d: %+v, want %d up and %d needed", look, o, up[kind], need[kind])
				}
				if !o.Known {
					continue
				}
				// With less than a day nothing but the last slot is to go by.
				keep := min(o.Nodes, max(level[kind][look-1], need[kind])+max((o.Nodes*r.Forecast.SparePercent+99)/100, 2*len(snap.Waiting)))
				if o.Keep != keep {
					t.Fatalf("look %d: %+v keeps %d up, want %d", look, o, o.Keep, keep)
				}
				in := func(ids []cluster.NodeID) (n int) {
					for _, id := range ids {
						if int(id[1]-'1')/5 == kind {
							n++
						}
					}
					return n
				}
				if n := in(gotDown); n > 0 && up[kind]-n < keep {
					t.Fatalf("look %d: %d of %d go down, %d are to stay", look, n, up[kind], keep)
				}
				for _, id := range gotUp[min(len(wake), r.AtOnce):] {
					if i := int(id[1] - '1'); i/5 == kind && (states[i] != cluster.PoweredDown || up[kind] >= keep) {
						t.Fatalf("look %d: %s is woken, %d of %d are up", look, id, up[kind], keep)
					}
				}
				if n := in(gotUp) - in(wake); n > max(0, keep-up[kind]) {
					t.Fatalf("look %d: %d are woken, %d of %d are up", look, n, up[kind], keep)
				}
			}
			for i, s := range states {
				if s == cluster.PoweringUp {
					states[i] = cluster.PowerUp
				}
			}
			for _, id := range gotUp {
				states[id[1]-'1'] = cluster.PoweringUp
				k.WentUp(snap.Now)
			}
			for _, id := range gotDown {
				states[id[1]-'1'] = cluster.PoweredDown
				k.WentDown(snap.Now)
			}
		}
	})
}

// TestNextLook: it is looked again when the slot is over, and when a node is idle for long
// enough before that.
func TestNextLook(t *testing.T) {
	t.Parallel()
	var k Keeper
	r := ahead(5)
	at := base.Add(time.Minute)
	if got := k.Next(r, at); got != base.Add(slot) {
		t.Errorf("next after %s", got.Sub(base))
	}
	k.Look(fleet(base.Add(-15*time.Minute), 1, 0), r, nil)
	if got := k.Next(r, at); got != base.Add(5*time.Minute) {
		t.Errorf("next after %s", got.Sub(base))
	}
	if got := r.Forecast.Next(base); got != base.Add(slot) {
		t.Errorf("after a slot's begin comes %s", got.Sub(base))
	}
}
