package power_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/power"
	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// cards are two cards that outlive agents, as real ones do.
type cards struct {
	mu     sync.Mutex
	limit  map[string]int64 // in milliwatts
	clock  map[string]int64
	usual  gpu.Tuning
	refuse map[string]error // by call
}

func newCards() *cards {
	return &cards{
		limit: map[string]int64{"GPU-a": 400_000, "GPU-b": 400_000}, clock: map[string]int64{}, refuse: map[string]error{},
		usual: gpu.Tuning{DefaultMilliW: 400_000, MinMilliW: 100_000, MaxMilliW: 400_000, ClocksMHz: []int64{1410, 1200, 600, 210}},
	}
}

func (c *cards) Tuning(_ context.Context, uuid string) (gpu.Tuning, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.usual
	t.LimitMilliW = c.limit[uuid]
	return t, c.refuse["tuning"]
}

func (c *cards) SetPowerLimit(_ context.Context, uuid string, milliW int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuse["limit"]; err != nil {
		return err
	}
	c.limit[uuid] = milliW
	return nil
}

func (c *cards) LockClock(_ context.Context, uuid string, mhz int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.refuse["clock"]; err != nil {
		return err
	}
	if c.clock[uuid] = mhz; mhz == 0 {
		delete(c.clock, uuid)
	}
	return nil
}

// refuses has a call fail from now on, or with nil do no more.
func (c *cards) refuses(call string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse[call] = err
}

// untouched reports whether the cards are as they were first.
func (c *cards) untouched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.clock) == 0 && c.limit["GPU-a"] == 400_000 && c.limit["GPU-b"] == 400_000
}

func open(t interface {
	Helper()
	Fatal(args ...any)
}, dir string, c gpu.Tuner) *power.Keeper {
	t.Helper()
	k, err := power.Open(dir, c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestWhatIsSet(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name   string
		ask    cluster.GPUPower
		change func(c *cards)
		want   cluster.CardPower // but for the GPU
	}{
		{"watts", cluster.GPUPower{Cap: "250W"}, nil, cluster.CardPower{CapW: 250}},
		{"a part", cluster.GPUPower{Cap: "70%"}, nil, cluster.CardPower{CapW: 280}},
		{"a part of the card's own limit, not of the one in force", cluster.GPUPower{Cap: "50%"}, func(c *cards) { c.limit["GPU-a"] = 300_000 }, cluster.CardPower{CapW: 200}},
		{"both", cluster.GPUPower{Cap: "250W", Freq: "1200"}, nil, cluster.CardPower{CapW: 250, ClockMHz: 1200}},
		{"below the least", cluster.GPUPower{Cap: "50W"}, nil, cluster.CardPower{CapW: 100, Why: "50 W is below the GPU's minimum of 100 W"}},
		{"above the most", cluster.GPUPower{Cap: "10000W"}, nil, cluster.CardPower{CapW: 400, Why: "10000 W is above the GPU's limit of 400 W"}},
		{"above what the site gives", cluster.GPUPower{Cap: "350W"}, func(c *cards) { c.limit["GPU-a"] = 300_000 }, cluster.CardPower{CapW: 300, Why: "350 W is above the GPU's limit of 300 W"}},
		{"a part of nothing", cluster.GPUPower{Cap: "1%"}, func(c *cards) { c.usual.DefaultMilliW, c.usual.MinMilliW = 70_000, 0 }, cluster.CardPower{CapW: 1}},
		{"a clock between", cluster.GPUPower{Freq: "1300"}, nil, cluster.CardPower{ClockMHz: 1200, Why: "1200 MHz is the nearest clock to 1300"}},
		{"low", cluster.GPUPower{Freq: "low"}, nil, cluster.CardPower{ClockMHz: 210}},
		{"medium", cluster.GPUPower{Freq: "medium"}, nil, cluster.CardPower{ClockMHz: 600}},
		{"high", cluster.GPUPower{Freq: "high"}, nil, cluster.CardPower{ClockMHz: 1410}},
		{"highm1", cluster.GPUPower{Freq: "highm1"}, nil, cluster.CardPower{ClockMHz: 1200}},
		{"no limits told", cluster.GPUPower{Cap: "250W", Freq: "high"}, func(c *cards) { c.limit["GPU-a"] = 0 }, cluster.CardPower{ClockMHz: 1410, Why: "no cap: the driver tells no power limit of the card"}},
		{"no default told", cluster.GPUPower{Cap: "50%"}, func(c *cards) { c.usual.DefaultMilliW = 0 }, cluster.CardPower{Why: "no cap: the driver tells no power limit of the card"}},
		{"no clocks told", cluster.GPUPower{Freq: "high"}, func(c *cards) { c.usual.ClocksMHz = nil }, cluster.CardPower{Why: "no clock: the driver tells none of the card"}},
		{"no permission", cluster.GPUPower{Cap: "250W", Freq: "high"}, func(c *cards) { c.refuse["limit"] = errors.New("no permission (code 4)") }, cluster.CardPower{ClockMHz: 1410, Why: "no cap: no permission (code 4)"}},
		{"an old card", cluster.GPUPower{Cap: "250W", Freq: "high"}, func(c *cards) { c.refuse["clock"] = errors.New("not supported (code 3)") }, cluster.CardPower{CapW: 250, Why: "no clock: not supported (code 3)"}},
		{"a silent driver", cluster.GPUPower{Cap: "250W"}, func(c *cards) { c.refuse["tuning"] = errors.New("no answer\nin 5s" + strings.Repeat("é", 500)) }, cluster.CardPower{Why: "no answer; in 5s" + strings.Repeat("é", 90) + "…"}},
		{"words of a newer coordinator", cluster.GPUPower{Freq: "turbo"}, nil, cluster.CardPower{Why: `gpu_freq: "turbo" is neither MHz from 1 to 10000, such as 1200, nor one of low, medium, high and highm1`}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := newCards()
			if x.change != nil {
				x.change(c)
			}
			first := c.limit["GPU-a"]
			k := open(t, t.TempDir(), c)
			got := k.Set(t.Context(), "j1-a1", []string{"GPU-a"}, x.ask)
			x.want.GPU = "GPU-a"
			if d := cmp.Diff([]cluster.CardPower{x.want}, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if x.want.CapW > 0 && c.limit["GPU-a"] != x.want.CapW*1000 || c.clock["GPU-a"] != x.want.ClockMHz || len(got[0].Why) > cluster.MaxPowerWhy {
				t.Errorf("the card has %d mW, %d MHz", c.limit["GPU-a"], c.clock["GPU-a"])
			}
			c.refuses("limit", nil)
			c.refuses("clock", nil)
			if !k.Leave(t.Context(), "j1-a1") || k.Leave(t.Context(), "j1-a1") {
				t.Error("it is not left once")
			}
			if c.limit["GPU-a"] != first || len(c.clock) > 0 {
				t.Errorf("left at %d mW, %v", c.limit["GPU-a"], c.clock)
			}
		})
	}
}

func TestWhatCannotBeSet(t *testing.T) {
	t.Parallel()
	k := open(t, t.TempDir(), nil)
	if got := k.Set(t.Context(), "j1-a1", []string{"GPU-a"}, cluster.GPUPower{Cap: "250W"}); len(got) != 1 || !strings.Contains(got[0].Why, "cannot be set") {
		t.Errorf("without a driver that can: %v", got)
	}
	c := newCards()
	k = open(t, t.TempDir(), c)
	if got := k.Set(t.Context(), "j1-a1", []string{"MIG-x"}, cluster.GPUPower{Cap: "250W"}); len(got) != 1 || !strings.Contains(got[0].Why, "a MIG instance") || !c.untouched() {
		t.Errorf("a part of a card: %v", got)
	}
	dir := t.TempDir()
	k = open(t, dir, c)
	if err := os.Mkdir(filepath.Join(dir, "power.json.new"), 0o700); err != nil { // nothing can be written
		t.Fatal(err)
	}
	if got := k.Set(t.Context(), "j1-a1", []string{"GPU-a"}, cluster.GPUPower{Cap: "250W"}); len(got) != 1 || !strings.Contains(got[0].Why, "kept on disk") || !c.untouched() {
		t.Errorf("what cannot be kept: %v, %v", got, c.limit)
	}
	if got := k.Of("j1-a1"); got != nil {
		t.Errorf("it is taken to be set: %v", got)
	}
	for _, bad := range []string{"{", `{"GPU-a":null}`, `{"":{}}`, `{"GPU-a":{"was_milliwatts":-1}}`} {
		if err := os.WriteFile(filepath.Join(dir, "power.json"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := power.Open(dir, c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestTriedAgain: what could not be brought back is, by itself, by whoever gets the card
// next, and by the next agent; what it was is not forgotten meanwhile.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := newCards()
		k := open(t, dir, c)
		both := []string{"GPU-a", "GPU-b"}
		stuck := func() {
			t.Helper()
			k.Set(t.Context(), "j1-a1", both, cluster.GPUPower{Cap: "250W", Freq: "low"})
			c.refuses("limit", gpu.ErrSilent)
			k.Leave(t.Context(), "j1-a1")
			if c.untouched() {
				t.Fatal("it is as it was all the same")
			}
		}
		stuck()
		if got := k.Set(t.Context(), "j2-a1", both[:1], cluster.GPUPower{Cap: "300W"}); got[0].CapW != 0 {
			t.Errorf("set: %v", got)
		}
		c.refuses("limit", nil)
		if got := k.Set(t.Context(), "j2-a1", both[:1], cluster.GPUPower{Cap: "100%"}); got[0].CapW != 400 || got[0].Why != "" {
			t.Errorf("the next one has %v", got)
		}
		k.Leave(t.Context(), "j2-a1")
		if k.Set(t.Context(), "j3-a1", both, cluster.GPUPower{}); !c.untouched() {
			t.Errorf("who asks for nothing gets %v, %v", c.limit, c.clock)
		}
		k.Set(t.Context(), "j4-a1", both, cluster.GPUPower{Cap: "250W"}) // its shares are cut, and another comes onto its card
		if k.Set(t.Context(), "j5-a1", both[1:], cluster.GPUPower{}); c.limit["GPU-a"] != 250_000 || c.limit["GPU-b"] != 400_000 {
			t.Errorf("beside another: %v", c.limit)
		}
		if k.Leave(t.Context(), "j4-a1"); !c.untouched() {
			t.Errorf("after both: %v", c.limit)
		}
		stuck()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		c.refuses("limit", nil)
		time.Sleep(time.Minute)
		if synctest.Wait(); !c.untouched() {
			t.Errorf("a minute later: %v, %v", c.limit, c.clock)
		}
		cancel()
		<-done
		stuck()
		c.refuses("limit", nil)
		k = open(t, dir, c)
		k.Adopt(func(string) bool { return true })
		if k.Leave(t.Context(), ""); !c.untouched() {
			t.Errorf("the next agent: %v, %v", c.limit, c.clock)
		}
	})
}

// errKilled ends a keeper at a step, as kill -9 ends its agent.
var errKilled = errors.New("killed")

// until does something, until a step at which it is killed.
func until(k *power.Keeper, at string, do func()) (killed bool) {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, errKilled) {
				panic(r)
			}
			killed = true
		}
	}()
	k.Failpoint(func(step string) {
		if step == at {
			panic(errKilled)
		}
	})
	do()
	return false
}

// TestKilledAnywhere: wherever an agent is killed, the next one brings the cards back: at
// once those of an attempt that is gone, and the others when theirs is over.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"before power kept", "after power kept", "after power set", "between", "before power back", "after power back"} {
		for _, goesOn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, goes on: %t", step, goesOn), func(t *testing.T) {
				t.Parallel()
				dir, c := t.TempDir(), newCards()
				ask := cluster.GPUPower{Cap: "250W", Freq: "1200"}
				both := []string{"GPU-a", "GPU-b"}
				k := open(t, dir, c)
				killed := until(k, step, func() {
					k.Set(t.Context(), "j1-a1", both, ask)
					if step != "between" {
						k.Leave(t.Context(), "j1-a1")
					}
				})
				if killed != (step != "between") {
					t.Fatalf("killed: %t", killed)
				}
				k = open(t, dir, c)
				k.Adopt(func(attempt string) bool { return goesOn && attempt == "j1-a1" })
				k.Leave(t.Context(), "") // as Run does first
				if !goesOn {
					if !c.untouched() || k.Of("j1-a1") != nil {
						t.Fatalf("the next agent leaves %v, %v", c.limit, c.clock)
					}
					return
				}
				if over := strings.Contains(step, "back"); !over {
					if got := k.Set(t.Context(), "j1-a1", both, ask); len(got) != 2 || got[0].CapW != 250 || c.limit["GPU-b"] != 250_000 || c.clock["GPU-a"] != 1200 {
						t.Errorf("set again: %v, %v, %v", got, c.limit, c.clock)
					}
				}
				if k.Leave(t.Context(), "j1-a1"); !c.untouched() {
					t.Errorf("in the end: %v, %v", c.limit, c.clock)
				}
			})
		}
	}
}

// TestCardsAreAsTheyWere in the end, whatever attempts follow each other on them and
// however often agents are killed.
func TestCardsAreAsTheyWere(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := newCards()
		k, live := open(t, dir, c), ""
		ctx := context.Background()
		restart := func() {
			k = open(t, dir, c)
			k.Adopt(func(attempt string) bool { return attempt == live && live != "" })
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "steps") {
			at := rapid.SampledFrom([]string{"", "", "before power kept", "after power kept", "after power set", "before power back", "after power back"}).Draw(t, "killed")
			ask := cluster.GPUPower{
				Cap:  rapid.SampledFrom([]cluster.PowerCap{"", "250W", "70%"}).Draw(t, "cap"),
				Freq: rapid.SampledFrom([]cluster.GPUFreq{"", "1200", "low"}).Draw(t, "freq"),
			}
			c.refuse = map[string]error{}
			if call := rapid.SampledFrom([]string{"", "", "limit", "clock", "tuning"}).Draw(t, "refused"); call != "" {
				c.refuse[call] = gpu.ErrSilent
			}
			if live == "" {
				live = fmt.Sprintf("j%d-a1", i+1)
			}
			killed := until(k, at, func() {
				k.Set(ctx, live, []string{"GPU-a", "GPU-b"}[:rapid.IntRange(1, 2).Draw(t, "cards")], ask)
				if rapid.Bool().Draw(t, "ends") {
					over := live
					live = ""
					k.Leave(ctx, over)
				}
			})
			if killed {
				restart()
			}
		}
		c.refuse, live = map[string]error{}, ""
		restart()
		if k.Leave(ctx, ""); !c.untouched() {
			t.Fatalf("left with %v, %v", c.limit, c.clock)
		}
	})
}

// TestOfIsInOrder for reports that are the same each time.
func TestOfIsInOrder(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), newCards()
	k := open(t, dir, c)
	set := k.Set(t.Context(), "j1-a1", []string{"GPU-b", "GPU-a"}, cluster.GPUPower{Cap: "250W"})
	slices.Reverse(set)
	for range 5 {
		k = open(t, dir, c)
		if d := cmp.Diff(set, k.Of("j1-a1")); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	}
}
