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

// trialOfMany is a program that gains most when its value grows as its steps do, and goes on from
// the state of its own generation, else from that of the one that it was told.
const trialOfMany = `import json, os, time
own, other, h, total = os.environ["BERTH_TRIAL_DIR"], os.environ.get("BERTH_TRIAL_FROM"), float(os.environ["BERTH_PARAM_H"]), 60
os.makedirs(own, exist_ok=True)
def load(folder):
    try:
        return json.load(open(os.path.join(folder, "state")))
    except (OSError, TypeError):
        return None
state = load(own) or load(other) or {"step": 0, "gain": 0.0, "of": []}
while True:
    with open(os.path.join(own, "new"), "w") as f:
        json.dump(state, f)
    os.replace(os.path.join(own, "new"), os.path.join(own, "state"))
    with open(os.environ["BERTH_PROGRESS"], "a") as f:
        f.write(json.dumps({"step": state["step"], "gain": state["gain"]}) + "\n")
    if state["step"] >= total:
        break
    time.sleep(0.3)
    state["step"] += 1
    state["gain"] += max(0, 1 - 4 * (h - state["step"] / total) ** 2)
    state["of"].append([int(os.environ["SLURM_ARRAY_TASK_ID"]), int(os.environ["BERTH_TRIAL_GENERATION"]), h])
`

// TestAPopulationOutlivesTheLeader: trials go on from the state of better ones with values
// near theirs, under their own ids, though the leader is killed; what each did is in its
// state, and the list says the same.
func TestAPopulationOutlivesTheLeader(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3" // which every user may run
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no python3")
	}
	c := startCluster(t, "--coordinators", "3", "--nodes", "2x1xA100-SXM4-80GB")
	dir := openDir(t)
	for name, text := range map[string]string{"member.py": trialOfMany, "pbt.yaml": `name: pbt
command: [` + python + `, member.py]
gpus: 1
gpu_mem: 4G
gpu_util: 10
study:
  metric: gain
  goal: maximize
  stop: pbt
  trials: 8
  first: 8
  eta: 4
  space:
    h: {uniform: [0.01, 1]}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const uid = 31001
	if said := c.runAs(uid, "study", "create", "-D", dir, "-o", "/dev/null", filepath.Join(dir, "pbt.yaml")); said.code != 0 {
		t.Fatalf("%s%s", said.stdout, said.stderr)
	}
	type trial struct {
		Trial      int
		State      string
		Step       int64
		Best       *float64
		CopiedFrom []int `json:"copied_from"`
		Params     map[string]string
	}
	var s struct {
		Study  struct{ Running, Ended int }
		Trials []trial
	}
	read := func() bool {
		r := c.runAs(uid, "study", "show", "1", "-o", "json")
		s.Trials = nil
		return r.code == 0 && json.Unmarshal([]byte(r.stdout), &s) == nil
	}
	copied := func(tr trial) bool { return len(tr.CopiedFrom) > 0 }
	c.eventually("a trial to go on from another one", func() bool { return read() && slices.ContainsFunc(s.Trials, copied) })
	c.kill(c.leader().PID)
	c.eventually("all to end", func() bool { return read() && s.Study.Ended == 8 && len(s.Trials) == 8 })
	again := 0
	for _, tr := range s.Trials {
		if tr.State != "COMPLETED" || tr.Step != 60 {
			t.Errorf("trial %d ended as %s at step %d", tr.Trial, tr.State, tr.Step)
		}
		n := len(tr.CopiedFrom)
		again += n
		var state struct {
			Step int64
			Gain float64
			Of   [][3]float64
		}
		data, err := os.ReadFile(filepath.Join(dir, "berth-study-1", fmt.Sprintf("trial-%d", tr.Trial), fmt.Sprintf("generation-%d", n), "state"))
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if err != nil || state.Step != 60 || len(state.Of) != 60 {
			t.Errorf("the state of trial %d: %v, %+v", tr.Trial, err, state)
			continue
		}
		mine := func(o [3]float64) bool { return int(o[0]) == tr.Trial && int(o[1]) == n }
		first := slices.IndexFunc(state.Of, mine)
		if n > 0 && first < 0 {
			continue // the other one was done by the time that it began
		}
		last := state.Of[59]
		if int(last[0]) != tr.Trial || int(last[1]) != n || fmt.Sprintf("%.6g", last[2]) != tr.Params["h"] {
			t.Errorf("trial %d of generation %d with %v: its last step is %v", tr.Trial, n, tr.Params, last)
		}
		// What it did before it began again is that of the one that it went on from.
		if n > 0 && (first < 8 || int(state.Of[first-1][0]) != tr.CopiedFrom[n-1]) {
			t.Errorf("trial %d went on from %v: %v", tr.Trial, tr.CopiedFrom, state.Of)
		}
	}
	t.Logf("%d times one went on from another; the best gained %.1f, with one value at most 40.0 are to be had", again, *s.Trials[0].Best)
	text := c.runAs(uid, "study", "show", "1").stdout
	if again == 0 || !strings.Contains(text, "pbt: every 8 steps the worst of 4 continues from one of the best") || !strings.Contains(text, "FROM") {
		t.Errorf("%d times one went on from another:\n%s", again, text)
	}
	i := slices.IndexFunc(s.Trials, copied)
	if text := c.runAs(uid, "show", fmt.Sprintf("1_%d", s.Trials[i].Trial)).stdout; !strings.Contains(text, "; it goes on from trial ") {
		t.Errorf("berth show says\n%s", text)
	}
}

// TestASearchFromOutside: the driver of deploy/python asks for values, submits a job for each
// trial, and is told what came of it; a job that fails costs no more than itself.
func TestASearchFromOutside(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3" // which every user may run
	if _, err := os.Stat(python); err != nil {
		t.Skip("there is no python3")
	}
	driver, err := os.ReadFile("../deploy/python/berth_search.py")
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, "--nodes", "1x1xA100-SXM4-80GB")
	dir := openDir(t)
	if err := os.WriteFile(filepath.Join(dir, "berth_search.py"), driver, 0o644); err != nil {
		t.Fatal(err)
	}
	trial := `import json, os, sys
x, mode = float(sys.argv[1]), sys.argv[2]
open(os.environ["BERTH_PROGRESS"], "a").write(json.dumps({"step": 1, "loss": (x - 0.3) ** 2 + (mode == "b")}) + "\n")
sys.exit(1 if x > 0.95 else 0)
`
	if err := os.WriteFile(filepath.Join(dir, "trial.py"), []byte(trial), 0o644); err != nil {
		t.Fatal(err)
	}
	search := func(args ...string) (string, int) {
		script := "cd " + dir + " && PATH=" + filepath.Dir(berth) + `:$PATH exec "$@"`
		r := c.runOf("/bin/sh", c.socket, 31001, slices.Concat([]string{"-c", script, "sh", python, "berth_search.py"}, args)...)
		return r.stdout + r.stderr, r.code
	}
	out, code := search("--trials", "16", "--at-once", "4", "--metric", "loss", "--space", "x=0:1", "--space", "mode=a,b", "--seed", "3", "--",
		"-D", dir, "-o", "/dev/null", "--gpus", "1", "--gpu-mem", "2G", "--gpu-util", "10", "--", python, "trial.py", "{x}", "{mode}")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var best struct {
		Best   float64
		Values map[string]any
	}
	if code != 0 || len(lines) != 17 || json.Unmarshal([]byte(lines[16]), &best) != nil || best.Best > 0.05 || best.Values["mode"] != "a" {
		t.Fatalf("exit code %d: %s", code, out)
	}
	for _, bad := range [][]string{{"--trials", "1", "--metric", "loss", "--space", "x=1:0", "--", "--", "true"}, {"--trials", "1", "--metric", "loss", "--space", "x=0:1"}} {
		if out, code := search(bad...); code == 0 || !strings.Contains(out, "want ") {
			t.Errorf("%q: exit code %d, %s", bad, code, out)
		}
	}
}
