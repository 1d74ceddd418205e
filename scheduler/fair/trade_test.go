package fair

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
)

// dealt is a market of accounts that always have jobs, of which each takes so long on
// each type.
func dealt(gpus []int64, parts []float64, times [][]time.Duration) *Market {
	types := make([]string, len(gpus))
	for k := range types {
		types[k] = fmt.Sprint("type", k)
	}
	m := NewMarket(types, gpus, make([]int64, len(gpus)))
	for i, part := range parts {
		t := m.Trader(fmt.Sprint("account", i), part)
		t.Wants(1_000_000_000, times[i])
		for k := range gpus {
			t.Waits(k, 1_000_000)
		}
	}
	m.Deal()
	return m
}

// TestTradeByHand: two accounts and two GPUs of each type, of which each is entitled to
// one. At sqrt(1.2 x 4.8) = 2.4 the one slow GPU of the second buys 1/2.4 fast ones.
func TestTradeByHand(t *testing.T) {
	t.Parallel()
	m := dealt([]int64{2000, 2000}, []float64{1, 1}, [][]time.Duration{{100 * time.Second, 120 * time.Second}, {100 * time.Second, 480 * time.Second}})
	if len(m.Trades) != 1 || m.Trades[0].String() != "account0 leaves 0.4 type0 to account1 for 1.0 type1, at a price of 2.40" {
		t.Fatalf("trades %v", m.Trades)
	}
	// Rounded, the first may hold one fast and both slow GPUs, the second the other fast one.
	for i, want := range [][2]int{{1, 2}, {1, 0}} {
		if name := fmt.Sprint("account", i); m.May(name, 0) != want[0] || m.May(name, 1) != want[1] {
			t.Errorf("%s may hold %d and %d, want %v", name, m.May(name, 0), m.May(name, 1), want)
		}
	}
	m.free = []int64{1000, 1000}
	if !m.Keeps("account1", 1, 1000) || m.Keeps("account0", 1, 1000) {
		t.Error("the second takes a slow GPU for which the first waits, or the first may not")
	}
	m.at["account0"].waits[1] = 0
	m.owe(1)
	if m.Keeps("account1", 1, 1000) {
		t.Error("a slow GPU stays idle that nobody waits for")
	}
}

// TestAccountsThatWantLittle: one that wants half a GPU is entitled to no more, and where
// there are enough GPUs for all, nothing is traded.
func TestAccountsThatWantLittle(t *testing.T) {
	t.Parallel()
	even, steep := []time.Duration{time.Minute, time.Minute}, []time.Duration{time.Minute, 5 * time.Minute}
	m := NewMarket([]string{"fast", "slow"}, []int64{2000, 2000}, []int64{0, 0})
	m.Trader("small", 1).Wants(500, even)
	m.Trader("large", 1).Wants(9000, even)
	m.Trader("other", 1).Wants(9000, steep)
	m.Deal()
	if got := m.at["small"].may[0] + m.at["small"].may[1]; got > 500.001 {
		t.Errorf("it wants 500 thousandths and may hold %f", got)
	}
	m = NewMarket([]string{"fast", "slow"}, []int64{2000, 2000}, []int64{0, 0})
	m.Trader("small", 1).Wants(500, even)
	m.Trader("other", 1).Wants(3000, steep)
	if m.Deal(); len(m.Trades) > 0 {
		t.Errorf("there is enough for all, and they trade: %v", m.Trades)
	}
}

// TestTradesHold: whatever the accounts gain, nobody gets less done with what it may hold
// than with its part of every type, each price lies between the gains of both, and all
// together may hold what there is.
func TestTradesHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		types, n := rapid.IntRange(2, 4).Draw(rt, "types"), rapid.IntRange(2, 6).Draw(rt, "accounts")
		gpus := rapid.SliceOfN(rapid.Int64Range(1, 64), types, types).Draw(rt, "gpus")
		for k := range gpus {
			gpus[k] *= cluster.WholeGPU
		}
		parts, sum := make([]float64, n), 0.0
		times := make([][]time.Duration, n)
		for i := range parts {
			parts[i] = float64(rapid.IntRange(1, 9).Draw(rt, "part"))
			sum += parts[i]
			for range types {
				times[i] = append(times[i], time.Duration(rapid.IntRange(1, 60).Draw(rt, "minutes"))*time.Minute)
			}
		}
		m := dealt(gpus, parts, times)
		held, whole := make([]float64, types), make([]int64, types)
		for i := range parts {
			tr := m.at[fmt.Sprint("account", i)]
			had, has := 0.0, 0.0
			for k := range gpus {
				had += float64(gpus[k]) * parts[i] / sum / times[i][k].Minutes()
				has += tr.may[k] / times[i][k].Minutes()
				held[k] += tr.may[k]
				whole[k] += tr.bound[k]
				if tr.may[k] < -1e-6 {
					rt.Fatalf("account %d gave more of type %d than it had", i, k)
				}
			}
			if has < had*(1-1e-9) {
				rt.Fatalf("account %d gets %f done and not %f; %v", i, has, had, m.Trades)
			}
		}
		for k := range gpus {
			if math.Abs(held[k]-float64(gpus[k])) > 1e-3 || len(m.Trades) > 0 && whole[k] != gpus[k] {
				rt.Fatalf("of type %d there are %d, and all may hold %f, rounded %d", k, gpus[k], held[k], whole[k])
			}
		}
		for _, d := range m.Trades {
			var a, b int
			fmt.Sscanf(d.Sold+" "+d.Paid, "type%d type%d", &a, &b)
			low, high := m.at[d.Seller].gain(a, b), m.at[d.Buyer].gain(a, b)
			if d.Price < low*(1-1e-9) || d.Price > high*(1+1e-9) || d.GPUs <= 0 || high*1000 < low*worthMilli*(1-1e-9) {
				rt.Fatalf("%v, by accounts that gain %f and %f", d, low, high)
			}
		}
	})
}
