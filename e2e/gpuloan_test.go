package e2e

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// loadedServer tells how many requests it has in flight, which the file load says.
const loadedServer = `import http.server, os, sys, threading, time
def tell():
    step = 0
    while True:
        step += 1
        with open(os.environ["BERTH_PROGRESS"], "a") as f:
            f.write('{"step": %d, "in_flight": %s}\n' % (step, open("load").read().strip() or "0"))
        time.sleep(0.5)
threading.Thread(target=tell, daemon=True).start()
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
`

// trainer counts without end and takes two seconds to save at USR1.
const trainer = `#!/bin/sh
f=count-$BERTH_JOB_ID
n=0
[ -f $f ] && n=$(cat $f)
echo "from $n" >>log-$BERTH_JOB_ID
trap 'sleep 2; echo $n >$f; echo "saved $n" >>log-$BERTH_JOB_ID; exit 0' USR1
while :; do
	sleep 0.1
	n=$((n + 1))
done
`

// loaned is what berth show -o json says of attempts and their loans.
type loaned struct {
	State    string
	Node     string
	Started  time.Time
	Attempts []struct {
		State        string
		Loan         string
		Started      *time.Time
		Ended        *time.Time
		Reason       string
		ReasonDetail string `json:"reason_detail"`
	}
}

// TestCardsOnLoan: trainers fill their own cards and borrow those that a service leaves idle;
// its load rises, and replicas come up within the grace while a leader dies; those who gave
// back saved their state and wait under their ids; the load falls, and they borrow again.
func TestCardsOnLoan(t *testing.T) {
	t.Parallel()
	needPython(t, "import http.server")
	c := startClusterWith(t, []string{"BERTH_SCHEDULING_PREEMPT_EVERY=2s"}, "--coordinators", "3", "--nodes", "2x4xA100-SXM4-80GB")
	c.run("partition", "set", "train", "--nodes", "n2", "--default")
	c.run("partition", "set", "serve", "--nodes", "n1", "--lend-to", "train")
	dir := openDir(t)
	write(t, filepath.Join(dir, "server.py"), loadedServer)
	write(t, filepath.Join(dir, "train.sh"), trainer)
	write(t, filepath.Join(dir, "load"), "1")
	as := func(args ...string) string {
		t.Helper()
		r := c.runAs(alice, args...)
		if r.code != 0 {
			t.Fatalf("berth %s: %s%s", strings.Join(args, " "), r.stdout, r.stderr)
		}
		return r.stdout
	}
	as("service", "create", "chat", "--partition", "serve", "-D", dir, "-o", "/dev/null", "--exclusive", "--replicas", "1-4", "--gpus", "1",
		"--scale-on", "in_flight=4", "--drain", "1s", "--", python, "server.py", "{port}")
	ready := func() int {
		var s service
		if r := c.runAs(alice, "service", "show", "chat", "-o", "json"); r.code == 0 {
			c.unmarshal(r.stdout, &s)
		}
		return s.Ready
	}
	c.eventually("the first replica", func() bool { return ready() == 1 })

	var ids []uint64
	for range 8 {
		ids = append(ids, parseID(t, as("submit", "--parsable", "-D", dir, "-o", "/dev/null", "--exclusive", "--gpus", "1", "--checkpoint", "USR1@20s", "--", "sh", "train.sh")))
	}
	jobs := func() map[uint64]loaned {
		out := map[uint64]loaned{}
		for _, id := range ids {
			var j loaned
			if r := c.runAs(alice, "show", "-o", "json", strconv.FormatUint(id, 10)); r.code == 0 {
				c.unmarshal(r.stdout, &j)
				out[id] = j
			}
		}
		return out
	}
	borrowers := func(all map[uint64]loaned) (on []uint64) {
		for id, j := range all {
			if n := len(j.Attempts); n > 0 && j.State == "RUNNING" && j.Attempts[n-1].Loan == "serve" {
				on = append(on, id)
			}
		}
		slices.Sort(on)
		return on
	}
	var at []uint64
	c.eventually("four at home and three on loan", func() bool {
		all := jobs()
		at = borrowers(all)
		running := 0
		for _, j := range all {
			if j.State == "RUNNING" {
				running++
			}
		}
		return len(at) == 3 && running == 7
	})
	if text := as("show", strconv.FormatUint(at[0], 10)); !strings.Contains(text, "on loan from partition serve") {
		t.Errorf("berth show does not say that it is on loan:\n%s", text)
	}
	if text := c.run("partition", "show", "serve"); !strings.Contains(text, "3 GPUs of its own lent to others") {
		t.Errorf("berth partition show does not say what is lent:\n%s", text)
	}
	waits := slices.IndexFunc(ids, func(id uint64) bool { return !slices.Contains(at, id) && c.show(id).State != "RUNNING" })
	if text := as("why", strconv.FormatUint(ids[waits], 10)); !strings.Contains(text, "partition serve lends idle GPUs to jobs of partition train") {
		t.Errorf("berth why does not speak of loans:\n%s", text)
	}

	write(t, filepath.Join(dir, "load"), "8")
	c.eventually("somebody to give back", func() bool { return len(borrowers(jobs())) < 3 })
	c.kill(c.leader().PID)
	c.eventually("four replicas", func() bool { return ready() == 4 })
	all := jobs()
	if on := borrowers(all); len(on) > 0 {
		t.Errorf("jobs %v have on loan what four replicas hold", on)
	}
	for _, id := range at {
		j := all[id]
		a := j.Attempts[len(j.Attempts)-1]
		log := lines(filepath.Join(dir, "log-"+strconv.FormatUint(id, 10)))
		if a.State != "PREEMPTED" || !strings.Contains(a.ReasonDetail, "given back to partition serve") || len(log) == 0 || !strings.HasPrefix(log[len(log)-1], "saved ") {
			t.Errorf("job %d is %s, %+v, and its log %v", id, j.State, a, log)
		}
	}
	c.showStarts(t, at, all)

	write(t, filepath.Join(dir, "load"), "1")
	as("service", "scale", "chat", "1")
	c.eventually("three to borrow again", func() bool { return len(borrowers(jobs())) == 3 })
	for id, j := range jobs() {
		log := lines(filepath.Join(dir, "log-"+strconv.FormatUint(id, 10)))
		for i, line := range log {
			if n, saved := strings.CutPrefix(line, "saved "); saved && i+1 < len(log) && log[i+1] != "from "+n {
				t.Errorf("job %d saved %s and went on %q", id, n, log[i+1])
			}
		}
		if len(j.Attempts) > 3 {
			t.Errorf("job %d has %d attempts", id, len(j.Attempts))
		}
	}
}

// showStarts checks that each replica started within the grace of who made room for it, and
// what a pass and a new leader take.
func (c *cluster) showStarts(t *testing.T, gaveBack []uint64, all map[uint64]loaned) {
	t.Helper()
	var s service
	c.unmarshal(c.runAs(alice, "service", "show", "chat", "-o", "json").stdout, &s)
	var began, left []time.Time
	for _, r := range s.Replicas {
		var j loaned
		c.showInto(r.Job, &j)
		began = append(began, j.Started)
	}
	for _, id := range gaveBack {
		j := all[id]
		left = append(left, *j.Attempts[len(j.Attempts)-1].Ended)
	}
	slices.SortFunc(began, time.Time.Compare)
	slices.SortFunc(left, time.Time.Compare)
	for i, at := range left { // the first replica was there before
		if d := began[i+1].Sub(at); d > 30*time.Second {
			t.Errorf("replica %d started %s after the card was given back", i+1, d)
		} else {
			t.Logf("replica %d started %s after the card was given back", i+1, d.Round(time.Millisecond))
		}
	}
}
