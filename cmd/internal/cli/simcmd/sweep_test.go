package simcmd_test

import (
	"encoding/csv"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/simcmd"
)

// TestSimSweep: all combinations, in the order of the values, whatever runs
// first.
func TestSimSweep(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	var first string
	for _, parallel := range []string{"1", "4"} {
		w := clitest.NewWorld(t, simulator)
		if code := w.Run("sim", "sweep", "--trace", path, "--vary", "max-shares=1,2", "--vary", "dur-error=0,0.5", "--vary", "policy=ffd,slot+sjf",
			"--seeds", "2", "--util-error", "0.2", "--parallel", parallel, "--no-timing", "-o", "json"); code != 0 {
			t.Fatal(w.Errs.String())
		}
		if first == "" {
			first = w.Out.String()
		}
		if d := cmp.Diff(first, w.Out.String()); d != "" {
			t.Errorf("%s at a time print something else:\n%s", parallel, d)
		}
	}
	var got struct {
		Results []struct {
			Options map[string]string `json:"options"`
			Policy  string            `json:"policy"`
			Seed    uint64            `json:"seed"`
			MeanJCT float64           `json:"mean_jct_s"`
		} `json:"results"`
		Summary []simcmd.Summary `json:"summary"`
	}
	if err := json.Unmarshal([]byte(first), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 16 || len(got.Summary) != 8 {
		t.Fatalf("%d results, %d means; want 16 and 8", len(got.Results), len(got.Summary))
	}
	if d := cmp.Diff(map[string]string{"max-shares": "1", "duration-error": "0", "policy": "slot+sjf"}, got.Results[2].Options); d != "" {
		t.Errorf("third result (-want +got):\n%s", d)
	}
	if r := got.Results[2]; r.Policy != "slot+sjf" || r.Seed != 1 || r.MeanJCT <= 0 {
		t.Errorf("third result %+v", r)
	}
	if s := got.Summary[1]; s.Seeds != 2 || s.Mean["mean_jct_s"] != (got.Results[2].MeanJCT+got.Results[3].MeanJCT)/2 {
		t.Errorf("mean %+v of %+v", s.Mean["mean_jct_s"], got.Results[2:4])
	}
}

func TestSimSweepFormats(t *testing.T) {
	t.Parallel()
	path, plots := writeFile(t, "tiny.csv", simTrace), filepath.Join(t.TempDir(), "plots")
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "sweep", "--trace", path, "--vary", "cluster=1x1:T4,2x4:T4", "-o", "csv", "--plot", plots); code != 0 {
		t.Fatal(w.Errs.String())
	}
	rows, err := csv.NewReader(strings.NewReader(w.Out.String())).ReadAll()
	if err != nil || len(rows) != 3 || rows[0][0] != "cluster" || rows[2][0] != "2x4:T4" {
		t.Errorf("%v, %v", rows, err)
	}
	if files, err := filepath.Glob(filepath.Join(plots, "tiny-mean_jct.svg")); err != nil || len(files) != 1 {
		t.Errorf("drawings %v, %v", files, err)
	}
	w = clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "sweep", "--trace", path, "--vary", "max-shares=1,3"); code != 0 || !strings.Contains(w.Out.String(), "MAX-SHARES") {
		t.Errorf("code %d: %s%s", code, w.Out.String(), w.Errs.String())
	}
}

func TestSimSweepBad(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	for name, c := range map[string]struct {
		vary []string
		says string
	}{
		"nothing varies":    {nil, "--vary is missing"},
		"no values":         {[]string{"max-shares"}, "want OPTION=A,B"},
		"no such option":    {[]string{"colour=red"}, "those that can are"},
		"not of what runs":  {[]string{"output=json,csv"}, "this option cannot vary"},
		"twice":             {[]string{"max-shares=1", "max-shares=2"}, "given twice"},
		"no number":         {[]string{"max-shares=few"}, "max-shares"},
		"no such policy":    {[]string{"policy=ffd,best"}, "the policies are"},
		"too many settings": {[]string{"max-shares=" + strings.Repeat("1,", 200) + "1", "demand=" + strings.Repeat("1,", 200) + "1"}, "more than 10000"},
	} {
		w := clitest.NewWorld(t, simulator)
		args := []string{"sim", "sweep", "--trace", path}
		for _, v := range c.vary {
			args = append(args, "--vary", v)
		}
		if code := w.Run(args...); code != console.ExitUsage || !strings.Contains(w.Errs.String(), c.says) {
			t.Errorf("%s: code %d, want %q:\n%s", name, code, c.says, w.Errs.String())
		}
	}
}

// TestSimWide: a gang that no cluster holds is left out by its row, or stops
// the command.
func TestSimWide(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "wide.csv", "job_id,arrival_s,duration_s,gpu_num\na,0,10,1\nb,0,10,9\nc,0,10,4\n")
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", path, "--cluster", "2x2:T4", "-o", "json"); code != 0 || !strings.Contains(w.Errs.String(), "row 3: job b: wants 9 GPUs") {
		t.Fatalf("code %d: %s", code, w.Errs.String())
	}
	var got simcmd.View
	if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if r := got.Results[0]; r.Jobs != 2 || r.Completed != 2 || got.Read.Skipped != 1 || got.Read.Bad[0].Row != 3 {
		t.Errorf("%+v, read %+v", r, got.Read)
	}
	w = clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", path, "--cluster", "2x2:T4", "--strict"); code != console.ExitFailed || !strings.Contains(w.Errs.String(), "row 3") {
		t.Errorf("strict: code %d: %s", code, w.Errs.String())
	}
}

// TestSimClusters takes clusters in all their forms.
func TestSimClusters(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "tiny.csv", simTrace)
	nodes := writeFile(t, "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,10240,2,T4\nn1,64000,10240,2,T4\n")
	for cluster, gpus := range map[string]int{
		nodes: 4, filepath.Dir(nodes): 4, "3x2:T4": 6, writeFile(t, "c.yaml", "nodes:\n- {count: 2, gpus: 4, gpu_type: T4}\n"): 8,
	} {
		w := clitest.NewWorld(t, simulator)
		if code := w.Run("sim", "run", "--trace", path, "--cluster", cluster, "-o", "json"); code != 0 {
			t.Errorf("%s: %s", cluster, w.Errs.String())
			continue
		}
		var got simcmd.View
		if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil || got.Results[0].GPUs != gpus {
			t.Errorf("%s: %d GPUs, %v; want %d", cluster, got.Results[0].GPUs, err, gpus)
		}
		if got.Results[0].EnergyKWh == nil {
			t.Errorf("%s: no energy, though T4 is published", cluster)
		}
	}
}

// TestSimPredictor lets the shipped predictor decide, where models are named.
func TestSimPredictor(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "named.csv", "job_id,arrival_s,duration_s,gpu_num,gpu_mem_mib,gpu_util_pct,model,batch_size\na,0,600,1,4000,40,resnet50,16\nb,0,600,1,4000,40,nobody,16\n")
	w := clitest.NewWorld(t, simulator)
	if code := w.Run("sim", "run", "--trace", path, "--cluster", "1x2:T4", "--predictor", "builtin", "-o", "json"); code != 0 {
		t.Fatal(w.Errs.String())
	}
	if !strings.Contains(w.Out.String(), "knows the models of 1 of 2 jobs") {
		t.Errorf("not said what is known: %s", w.Out.String())
	}
	for args, says := range map[string]string{
		writeFile(t, "tiny.csv", simTrace) + " builtin": "names no model that the predictor knows", path + " oracle": "want errors or builtin",
	} {
		w := clitest.NewWorld(t, simulator)
		file, who, _ := strings.Cut(args, " ")
		if code := w.Run("sim", "run", "--trace", file, "--predictor", who); code == 0 || !strings.Contains(w.Errs.String(), says) {
			t.Errorf("%s: code %d, want %q: %s", args, code, says, w.Errs.String())
		}
	}
}
