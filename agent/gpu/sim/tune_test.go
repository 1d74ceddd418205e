package sim

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu/sim/simclient"
	"github.com/berth-scheduler/berth/agent/gpu/tunetest"
)

// TestSettingsOutliveTheAgent: a limit and a clock stay until they are brought back, for
// the next agent as well, and the card draws and counts by the limit.
func TestSettingsOutliveTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Spec{Type: "A100-SXM4-80GB", Count: 2})
		again := func() {
			t.Helper()
			n.down()
			n.ln = &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
			var err error
			if n.prov, err = newProvider(Config{Node: "n1", Specs: n.specs, Socket: filepath.Join(dir, "cards")}, n.ln, func(net.Conn) (peer, error) { return peer{pid: 42, uid: n.uid}, nil }); err != nil {
				t.Fatal(err)
			}
		}
		again()
		defer func() { n.down() }()
		uuid := UUID("n1", 1)
		limits := func() (w [2]int) {
			cards, err := n.prov.Inventory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return [2]int{cards[0].PowerLimitW, cards[1].PowerLimitW}
		}
		for _, bad := range []struct {
			say string
			err error
		}{
			{"outside 100000 to 400000", n.prov.SetPowerLimit(t.Context(), uuid, 99_999)},
			{"outside 100000 to 400000", n.prov.SetPowerLimit(t.Context(), uuid, 400_001)},
			{"no clock of 1201 MHz", n.prov.LockClock(t.Context(), uuid, 1201)},
			{"unknown GPU", n.prov.SetPowerLimit(t.Context(), "GPU-x", 200_000)},
			{"unknown GPU", n.prov.LockClock(t.Context(), "GPU-x", 0)},
		} {
			if bad.err == nil || !strings.Contains(bad.err.Error(), bad.say) {
				t.Errorf("%q: %v", bad.say, bad.err)
			}
		}
		if err := n.prov.SetPowerLimit(t.Context(), uuid, 200_000); err != nil {
			t.Fatal(err)
		}
		if err := n.prov.LockClock(t.Context(), uuid, 1215); err != nil {
			t.Fatal(err)
		}
		again()
		got, err := n.prov.Tuning(t.Context(), uuid)
		if err != nil || limits() != [2]int{400, 200} || got.LimitMilliW != 200_000 || got.DefaultMilliW != 400_000 || got.MinMilliW != 100_000 || got.ClocksMHz[0] != 1410 {
			t.Fatalf("the next agent finds %v, %+v, %v", limits(), got, err)
		}

		cfg := n.admit("j1-a1", shared(1, 6144))
		done := make(chan error, 1)
		go func() {
			done <- simclient.Job{GPUMemMiB: 6144, UtilMilli: 1000, Seconds: 20}.Run(t.Context(), cfg, &strings.Builder{})
		}()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if u := n.usage()[1]; u.PowerW != 200 || u.EnergyMJ != 2_000_000 {
			t.Errorf("at 200 W it draws %d W and used %d mJ in 10 s", u.PowerW, u.EnergyMJ)
		}
		if err := n.prov.SetPowerLimit(t.Context(), uuid, 400_000); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		// Ten seconds at half the limit were done at this speed, and five at the usual one.
		slow := 1 / (0.6/math.Cbrt(140.0/340) + 0.4)
		if got := n.prov.bank.clients[0].run.done / 1e9; math.Abs(got-(10*slow+5)) > 0.01 || slow < 0.8 || slow > 0.9 {
			t.Errorf("%.3f s of work are done in 15 s, want %.3f", got, 10*slow+5)
		}
		if u := n.usage()[1]; u.PowerW != 400 || u.EnergyMJ != 4_000_000 || limits() != [2]int{400, 400} {
			t.Errorf("with its limit back it draws %d W and used %d mJ in 15 s; %v", u.PowerW, u.EnergyMJ, limits())
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := n.prov.LockClock(t.Context(), uuid, 0); err != nil {
			t.Fatal(err)
		}
		tunetest.Run(t, n.prov, UUID("n1", 0))
		if data, err := os.ReadFile(filepath.Join(dir, "cards.power")); err != nil || string(data) != "{}" {
			t.Errorf("kept: %s, %v", data, err)
		}
	})
}
