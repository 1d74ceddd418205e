package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strconv"
	"testing"

	"github.com/berth-scheduler/berth/agent/soaktest"
)

// TestSoakLoad loads a cluster of a few simulated nodes, or of 2,000, and kills its
// leader. What takes time is judged in the full form only.
func TestSoakLoad(t *testing.T) {
	t.Parallel()
	needRoot(t) // who submits as root
	nodes := soaktest.Times(t, 3, 2000)
	args := []string{
		"load", "--nodes", strconv.Itoa(nodes), "--gpus", "2", "--jobs", strconv.Itoa(10 * nodes), "--batch", "10", "--running", strconv.Itoa(3 * nodes),
		"--waiting", strconv.Itoa(2 * nodes), "--watchers", strconv.Itoa(min(1000, nodes)), "--rest", "3s", "--kill-leader", "-o", "json",
	}
	full := nodes > 3
	if full {
		args = append(args, "--coordinators", "3", "--rest", "30s")
	}
	cmd := exec.Command(berth, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said.String())
	}
	var figures []struct {
		Name, What, Unit string
		Value            float64
		Most             *float64
	}
	if err := json.Unmarshal(out, &figures); err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range figures {
		found[f.Name] = f.Value
		t.Logf("soak: %s: %.4g %s", f.What, f.Value, f.Unit)
		if f.Most != nil && f.Value > *f.Most && (full || f.Name == "rest_empty_entries" || f.Name == "rest_full_entries") {
			t.Errorf("%s: %v %s, at most %v is the target", f.What, f.Value, f.Unit, *f.Most)
		}
	}
	for _, name := range []string{"register_s", "rest_empty_rss_gib", "submits_per_s", "ends_per_s", "start_p50_ms", "job_log_bytes", "starts_per_s", "rest_full_entries", "watch_jobs_per_s", "apply_ms", "raft_db_mib", "rss_top_gib", "elect_s", "reconnect_s", "restart_s"} {
		if _, ok := found[name]; !ok {
			t.Errorf("%s was not measured", name)
		}
	}
	for _, name := range []string{"submits_per_s", "ends_per_s", "job_log_bytes", "starts_per_s", "watch_jobs_per_s", "restart_s"} {
		if found[name] == 0 {
			t.Errorf("%s is 0", name)
		}
	}
}
