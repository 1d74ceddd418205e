package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// pricesOf is a signal of a day from an hour on, which is cheap in one of its hours alone.
func pricesOf(from time.Time, cheap int) string {
	var rows []string
	for i, hour := 0, from; i < 24; i, hour = i+1, hour.Add(time.Hour) {
		price := "0.31"
		if i == cheap {
			price = "0.12"
		}
		rows = append(rows, hour.Format(time.RFC3339)+","+price)
	}
	return strings.Join(rows, "\n") + "\n"
}

// TestCheaperPower: a job that may wait for it begins when power is cheapest, which berth why
// tells, and goes by what the site says of it later, through another leader; it starts when
// the signal is too old. A job that may not wait starts at once.
func TestCheaperPower(t *testing.T) {
	t.Parallel()
	var signal atomic.Pointer[string]
	say := func(text string) { signal.Store(&text) }
	hour := time.Now().UTC().Truncate(time.Hour) // the next may begin meanwhile
	say(pricesOf(hour, 3))
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, *signal.Load()) }))
	t.Cleanup(site.Close)
	c := startClusterWith(t, []string{"BERTH_ENERGY_SIGNAL_SOURCE=" + site.URL, "BERTH_ENERGY_SIGNAL_UNIT=EUR/kWh", "BERTH_ENERGY_SIGNAL_EVERY=1s"}, "--coordinators", "3", "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	why := func(id uint64, hours int) {
		t.Helper()
		at := hour.Add(time.Duration(hours) * time.Hour).Format("2006-01-02 15:04")
		c.eventually("why it waits", func() bool {
			return strings.Contains(c.run("why", fmt.Sprint(id)), "waits for cheaper power: 0.12 instead of 0.31 EUR/kWh at "+at)
		})
	}
	c.eventually("the signal to be read", func() bool { // until then jobs start at once
		id := c.submit("-D", dir, "--expect", "30m", "--defer", "12h", "--", "true")
		return c.show(id).State == "PENDING" && strings.Contains(c.run("why", fmt.Sprint(id)), "cheaper power")
	})
	waits := c.submit("-D", dir, "--expect", "30m", "--defer", "12h", "--", "touch", filepath.Join(dir, "ran"))
	why(waits, 3)
	short := c.submit("-D", dir, "--expect", "30m", "--defer", "2h", "--", "true")
	now := c.submit("-D", dir, "--expect", "30m", "--", "true")
	c.await(short, "COMPLETED")
	c.await(now, "COMPLETED")
	say(pricesOf(hour, 5))
	why(waits, 5)
	c.kill(c.leader().PID)
	say(pricesOf(hour, 4))
	why(waits, 4)
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("it ran before its time")
	}
	say("2020-01-01T00:00:00Z,0.31\n")
	c.await(waits, "COMPLETED")
	c.eventually("users are told", func() bool {
		return strings.Contains(c.runAs(1001, "status").stdout, "! no job waits for cheaper power: energy_signal cannot be read")
	})
	if r := c.runAs(1001, "submit", "--defer", "1h", "--begin", "now+2hours", "--", "true"); r.code == 0 || !strings.Contains(r.stderr, "give only one of them") {
		t.Errorf("with a time of its own: exit code %d\n%s", r.code, r.stderr)
	}
}
