package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestJobsSayHowFarTheyAre: what a job writes into its file, by hand or by the module
// for Python, is shown while it runs and after its end, and whoever waits for it is
// told when it ends by that.
func TestJobsSayHowFarTheyAre(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "--coordinators", "1", "--nodes", "1x1xA100-SXM4-80GB")
	type told struct {
		Attempts []struct {
			Progress *struct {
				Step, Total int64
				StepSeconds float64    `json:"step_seconds"`
				Ends        *time.Time `json:"ends"`
			}
		}
	}
	progress := func(id uint64) (p told) {
		c.showInto(id, &p)
		return p
	}
	goOn := filepath.Join(c.dir, "..", "go-on")
	const uid = 31001
	r := c.runAs(uid, "submit", "--parsable", "--gpus", "1", "-D", "/", "-o", "/dev/null", "--", "sh", "-c",
		`test "$(stat -c %a:%u "$BERTH_PROGRESS")" = 600:31001 || exit 3
		 n=0; while ! test -e `+goOn+`; do n=$((n+1)); echo "{\"step\": $n, \"total\": 1000}" >> "$BERTH_PROGRESS"; sleep 1; done
		 echo '{"step": 1000, "total": 1000}' > "$BERTH_PROGRESS"`)
	first := parseID(t, r.stdout)
	behind := parseID(t, c.runAs(uid, "submit", "--parsable", "--gpus", "1", "-D", "/", "-o", "/dev/null", "--", "true").stdout)
	c.eventually("job 1 to be some steps on", func() bool {
		p := progress(first)
		return len(p.Attempts) == 1 && p.Attempts[0].Progress != nil && p.Attempts[0].Progress.Step >= 2 && p.Attempts[0].Progress.Ends != nil
	})
	if text := c.runAs(uid, "show", "1").stdout; !strings.Contains(text, "of 1,000 (") || !strings.Contains(text, " left") {
		t.Errorf("berth show says\n%s", text)
	}
	c.eventually("the one that waits to be told", func() bool {
		text := c.runAs(uid, "why", "2").stdout
		return strings.Contains(text, "it ends in ~") && !strings.Contains(text, "~60 min")
	})
	if err := os.WriteFile(goOn, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.await(first, "COMPLETED", "FAILED"); j.State != "COMPLETED" {
		t.Fatalf("exit code %d", j.code())
	}
	if p := progress(first).Attempts[0].Progress; p.Step != 1000 || p.Total != 1000 {
		t.Errorf("after its end: %+v", p)
	}
	c.await(behind, "COMPLETED")

	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("the module for Python is not tried: there is no python3")
	}
	module, err := filepath.Abs("../deploy/python")
	if err != nil {
		t.Fatal(err)
	}
	id := c.submit("--gpus", "1", "-D", "/", "-o", "/dev/null", "--", python, "-c", `
import sys, os; sys.path.insert(0, "`+module+`")
import berth_progress as b
b.report(1, total=5, loss=float("nan"))
for step in range(2, 6): b.report(step, total=5, loss=1/step)
os.environ["RANK"] = "1"; b.report(99, total=99)
os.environ["BERTH_PROGRESS"] = "/nowhere/at/all"; os.environ["RANK"] = "0"; b.report(99, total=99)
`)
	c.await(id, "COMPLETED")
	if p := progress(id).Attempts[0].Progress; p == nil || p.Step != 5 || p.Total != 5 {
		t.Errorf("by the module for Python: %+v", p)
	}
}
