package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAStudyOutlivesTheLeader: of nine trials that share two GPUs each finds its values,
// and all but the best are ended, for what they said of themselves, though the leader is
// killed in the middle.
func TestAStudyOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x1xA100-SXM4-80GB")
	dir := openDir(t)
	file := filepath.Join(dir, "sweep.yaml")
	err := os.WriteFile(file, []byte(`name: sweep
command: [sh, -c, "echo $BERTH_PARAM_LOSS $BERTH_PARAMS {loss} > seen-$SLURM_ARRAY_TASK_ID; n=0; until test -e over; do n=$((n+1)); echo \"{\\\"step\\\": $n, \\\"loss\\\": {loss}}\" >> $BERTH_PROGRESS; sleep 0.2; done"]
gpus: 1
gpu_mem: 4G
gpu_util: 10
study:
  metric: loss
  sampling: grid
  space:
    loss: [0.5, 2, 3, 4, 5, 6, 7, 8, 9]
  first: 4
  eta: 2
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	const uid = 31001
	said := c.runAs(uid, "study", "create", "-D", dir, "-o", "/dev/null", file)
	if said.code != 0 || !strings.Contains(said.stdout, "Submitted study 1 of 9 trials") {
		t.Fatalf("%s%s", said.stdout, said.stderr)
	}
	type shown struct {
		Study  struct{ Waiting, Running, Ended int }
		Trials []struct {
			Trial         int
			State, Reason string
			Best          *float64
			Params        map[string]string
		}
	}
	read := func() (s shown) {
		if r := c.runAs(uid, "study", "show", "1", "-o", "json"); r.code == 0 {
			if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
				t.Fatalf("%v: %s", err, r.stdout)
			}
		}
		return s
	}
	c.eventually("a trial to be ended", func() bool { return read().Study.Ended > 0 })
	c.kill(c.leader().PID)
	c.eventually("all but one to be ended", func() bool { return read().Study.Ended == 8 })
	if err := os.WriteFile(filepath.Join(dir, "over"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.await(1, "COMPLETED")
	s := read()
	if len(s.Trials) != 9 || s.Trials[0].Trial != 0 || s.Trials[0].State != "COMPLETED" || *s.Trials[0].Best != 0.5 {
		t.Fatalf("it shows %+v", s)
	}
	for _, tr := range s.Trials[1:] {
		if tr.State != "CANCELLED" || !strings.Contains(tr.Reason, "trials there, and the best") || tr.Params["loss"] != fmt.Sprint(tr.Trial+1) {
			t.Errorf("trial %d: %s, %s, %v", tr.Trial, tr.State, tr.Reason, tr.Params)
		}
	}
	if seen, err := os.ReadFile(filepath.Join(dir, "seen-7")); err != nil || string(seen) != "8 {\"loss\":8} 8\n" {
		t.Errorf("trial 7 found %q, %v", seen, err)
	}
	if text := c.runAs(uid, "show", "1_7").stdout; !strings.Contains(text, "StoppedEarly: loss 8 at step") || !strings.Contains(text, "loss=8; loss 8, the best 8 at step") {
		t.Errorf("berth show says\n%s", text)
	}
	other := c.runAs(uid+1, "study", "list", "--all", "-o", "name")
	if !slices.Equal(strings.Fields(other.stdout), []string{"1"}) || c.runAs(uid+1, "study", "show", "1").code == 0 {
		t.Errorf("another user sees %q of the list, or all of it", other.stdout)
	}
}
