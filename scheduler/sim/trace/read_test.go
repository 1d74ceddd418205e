package trace

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

// folder writes files of invented rows; names that end in .gz are packed.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		var b bytes.Buffer
		b.WriteString(text)
		if strings.HasSuffix(name, ".gz") {
			b.Reset()
			z := gzip.NewWriter(&b)
			if _, err := z.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const sec = time.Second

func TestForms(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		opt   Options
		form  string
		want  []workload.Job
	}{
		"helios": {
			map[string]string{"v.csv.gz": "job_id,submit_time,arrival_s,duration_s_clamped,gpu_num\n7,2020-01-01 00:00:05,5.0,60.0,8\n9,2020-01-01 00:00:09,9.0,30.5,1\n"},
			Options{}, "gpu jobs",
			[]workload.Job{{ID: "7", Duration: 60 * sec, GPUs: 8}, {ID: "9", Submit: 4 * sec, Duration: 30500 * time.Millisecond, GPUs: 1}},
		},
		"philly, one virtual cluster, no ids": {
			map[string]string{"p.csv": "submit_time,arrival_s,duration_s,gpu_num,vc\nx,-5,10,1,aa\nx,3,10,2,aa\nx,4,10,1,bb\nx,3,10,2,aa\n"},
			Options{Mix: "aa"}, "gpu jobs",
			[]workload.Job{{ID: "3000-10000-2-aa", Duration: 10 * sec, GPUs: 2, Group: "aa"}, {ID: "3000-10000-2-aa#2", Duration: 10 * sec, GPUs: 2, Group: "aa"}},
		},
		"muri": {
			map[string]string{"trace9.csv": "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n" +
				"0,4,2000,10,netx,64,90000,0,200,150,40,10,1\n"},
			Options{}, "muri",
			[]workload.Job{{ID: "0", Duration: 90 * sec, GPUs: 4, Model: "netx", Batch: 64, Steps: 10, Iteration: 200 * time.Millisecond, Stages: [3]int64{200, 750, 50}, UsedMilli: 200}},
		},
		"elasticflow": {
			map[string]string{"e.csv": "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\na1,100,5,m,180,32,2,60\n"},
			Options{}, "elasticflow",
			[]workload.Job{{ID: "a1", Duration: 60 * sec, GPUs: 2, Model: "m", Batch: 32, Steps: 5, Deadline: 80 * sec}},
		},
		"sia takes the first sample": {
			map[string]string{"s.csv": "workload,name,time,application,num_replicas,batch_size\n2,c-0,1,cifar10,1,8\n1,b-0,10,bert,2,8\n"},
			Options{}, "sia",
			[]workload.Job{{ID: "1/b-0", Duration: 5760 * sec, GPUs: 2, Model: "bert", Group: "1"}},
		},
		"gavel by steps": {
			map[string]string{"g.csv": "job_type,total_steps,scale_factor,arrival_s\nNet (batch size 4),1000,1,0.0\n"},
			Options{StepsPerSecond: map[StepKey]float64{{"v100", "Net (batch size 4)", 1}: 10, {"k80", "Net (batch size 4)", 1}: 2}}, "gavel",
			[]workload.Job{{ID: "0-100000-1-Net (batch size 4)", Duration: 100 * sec, GPUs: 1, Model: "Net (batch size 4)", Steps: 1000, On: []workload.OnType{{Type: "k80", Duration: 500 * sec}}}},
		},
		"openb picks default, and its nodes": {
			map[string]string{
				"x_pod_list_default.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np0,4000,8192,1,460,A|B,LS,Running,10,70,20\np1,1000,100,0,0,,BE,Running,11,12,11\n",
				"x_pod_list_other.csv":   "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nq,1,1,1,1000\nq2,1,1,1,1000\nq3,1,1,1,1000\nq4,1,1,1,1000\nq5,1,1,1,1000\nq6,1,1,1,1000\nq7,1,1,1,1000\n",
				"x_node_list.csv":        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,1024,2,A\nn1,64000,1024,2,A\nn2,32000,1024,0,\n",
			},
			Options{}, "openb",
			[]workload.Job{
				{ID: "p0", Duration: 50 * sec, GPUs: 1, Milli: 460, CPUMilli: 4000, HostMemMiB: 8192, Types: []string{"A", "B"}, Group: "LS"},
				{ID: "p1", Submit: sec, Duration: sec, CPUMilli: 1000, HostMemMiB: 100, Group: "BE"},
			},
		},
		"instances": {
			map[string]string{"d.csv": "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,memory_request,creation_time,scheduled_time,deletion_time\ni0,HN,app,12,12,1,1,25,120.0,100,101,400\ni1,CN,app,4,4,0,0,0,8,,,\n"},
			Options{Since: 100 * sec}, "dlrm",
			[]workload.Job{{ID: "i0", Duration: 300 * sec, GPUs: 1, CPUMilli: 12000, HostMemMiB: 122880, Group: "HN", Model: "app"}},
		},
		"series of pods": {
			map[string]string{"u.csv": "pod,t_s,gpu_util_pct,gpu_mem_mib\n0,0,10.0,100\n0,57,,300\n1,0,50,9\n0,114,20,200\n"},
			Options{}, "",
			[]workload.Job{{ID: "pod-0", Duration: 114 * sec, GPUs: 1, MemMiB: 300, UsedMilli: 150}, {ID: "pod-1", Duration: sec, GPUs: 1, MemMiB: 9, UsedMilli: 500}},
		},
		"sacct": {
			map[string]string{"s.txt": "JobID|User|Account|Submit|Start|End|State|AllocTRES\n" +
				"11|ann|lab|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|COMPLETED|billing=4,cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=1.5G,node=1\n" +
				"11.batch|||2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|COMPLETED|cpu=4\n" +
				"12|bob|lab|2026-01-01T00:00:30|Unknown|Unknown|CANCELLED by 0|\n"},
			Options{}, "sacct",
			[]workload.Job{{ID: "11", User: "ann", Group: "lab", Duration: 60 * sec, GPUs: 2, CPUMilli: 4000, HostMemMiB: 1536, Types: []string{"a100"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, err := Load(folder(t, c.files), c.opt)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, w.Jobs, cmpopts.IgnoreFields(workload.Job{}, "Row")); d != "" {
				t.Errorf("jobs (-want +got):\n%s", d)
			}
			if w.Form != c.form {
				t.Errorf("form %q, want %q", w.Form, c.form)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []workload.NodeSpec
	}{
		"openb":   {"sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,2,P\nb,64000,1024,2,P\nc,1000,1,0,\n", []workload.NodeSpec{{Count: 2, GPUs: 2, GPUType: "P", CPUMilli: 64000, HostMemMiB: 1024}, {Count: 1, CPUMilli: 1000, HostMemMiB: 1}}},
		"gfs":     {"gpu_model,gpu_capacity_num,cpu_num,node_name\nX,8,192,0\n", []workload.NodeSpec{{Count: 1, GPUs: 8, GPUType: "X", CPUMilli: 192000}}},
		"helios":  {"vc,num_nodes\nv1,3\n", []workload.NodeSpec{{Count: 3, GPUs: 8}}},
		"pai":     {"machine,gpu_type,cap_cpu,cap_mem,cap_gpu\nm,T4,96,512,2\n", []workload.NodeSpec{{Count: 1, GPUs: 2, GPUType: "T4", CPUMilli: 96000, HostMemMiB: 524288}}},
		"bad row": {"vc,num_nodes\nv1,three\n", nil},
	} {
		got, err := readNodes(name, strings.NewReader(c.text))
		if (err != nil) != (c.want == nil) {
			t.Errorf("%s: error %v", name, err)
		}
		if d := cmp.Diff(c.want, got); err == nil && d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestBadRows(t *testing.T) {
	t.Parallel()
	dir := folder(t, map[string]string{"a.csv": "job_id,arrival_s,duration_s,gpu_num\na,0,10,1\nb,zero,10,1\nc,1,10,-1\nd,2,\"1\"0,1\ne,3,0,1\nf,4,1e300,1\ng,5,10,1\nh\n"})
	w, rep, err := Load(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Jobs) != 2 || rep.Rows != 8 || rep.Skipped != 6 {
		t.Errorf("%d jobs of %d rows, %d skipped; want 2, 8, 6", len(w.Jobs), rep.Rows, rep.Skipped)
	}
	want := []int{3, 4, 5, 6, 7, 9}
	for i, b := range rep.Bad {
		if b.Row != want[i] || b.Err == "" {
			t.Errorf("bad row %d is %+v, want row %d", i, b, want[i])
		}
	}
	_, _, err = Load(dir, Options{Strict: true})
	if err == nil || !strings.Contains(err.Error(), "row 3: arrival_s") {
		t.Errorf("strict: got %v, want an error that names row 3 and the column", err)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	t.Run("a line without end", func(t *testing.T) {
		t.Parallel()
		dir := folder(t, map[string]string{"a.csv": "job_id,arrival_s,duration_s,gpu_num\n" + strings.Repeat("x", maxLine+2)})
		if _, _, err := Load(dir, Options{}); err == nil || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("got %v, want an error about the line", err)
		}
	})
	t.Run("no list of jobs", func(t *testing.T) {
		t.Parallel()
		if _, _, err := Load(folder(t, map[string]string{"a.csv": "x,y\n1,2\n"}), Options{}); err == nil {
			t.Error("was read")
		}
	})
	t.Run("a mix that is not there", func(t *testing.T) {
		t.Parallel()
		dir := folder(t, map[string]string{"a.csv": "job_id,arrival_s,duration_s,gpu_num\na,0,1,1\n"})
		if _, _, err := Load(dir, Options{Mix: "b:c"}); err == nil || !strings.Contains(err.Error(), "there are a") {
			t.Errorf("got %v, want an error that lists what there is", err)
		}
	})
}

// TestOrderOfRows shuffles a file; the workload must not change.
func TestOrderOfRows(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	var rows []string
	for i := range 50 {
		rows = append(rows, fmt.Sprintf("%d,%d,%d,g%d", r.IntN(20), 1+r.IntN(3), 1+r.IntN(2), i%2))
	}
	head := "arrival_s,duration_s,gpu_num,vc\n"
	first, _, err := Load(folder(t, map[string]string{"a.csv": head + strings.Join(rows, "\n")}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.Shuffle(len(rows), func(i, k int) { rows[i], rows[k] = rows[k], rows[i] })
	second, _, err := Load(folder(t, map[string]string{"a.csv": head + strings.Join(rows, "\n")}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first.Jobs, second.Jobs, cmpopts.IgnoreFields(workload.Job{}, "Row")); d != "" {
		t.Errorf("the order of the rows changed the workload:\n%s", d)
	}
}

// TestRealTraces reads every folder of real traces, where there are any.
func TestRealTraces(t *testing.T) {
	t.Parallel()
	root := os.Getenv("BERTH_TRACES")
	if root == "" {
		t.Skip("set BERTH_TRACES to a folder with one subfolder a trace")
	}
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := LoadSteps(filepath.Join(root, "..", "colocation"))
	if err != nil {
		t.Logf("no speeds: %v", err)
	}
	for _, d := range dirs {
		path := filepath.Join(root, d.Name())
		lists, nodes, err := survey(path, &Options{})
		if err != nil || len(lists) == 0 && len(nodes) == 0 {
			t.Errorf("%s: neither jobs nor nodes: %v", d.Name(), err)
		}
		for _, l := range lists {
			w, rep, err := Load(path, Options{Mix: l.stem, StepsPerSecond: steps})
			if err != nil {
				t.Errorf("%s: %v", l.stem, err)
				continue
			}
			if err := w.Check(); err != nil {
				t.Errorf("%s: %v", l.stem, err)
			}
			t.Logf("%s: %d rows, %d jobs, %d left out", w.Name, rep.Rows, rep.Jobs, rep.Skipped)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("job_id,arrival_s,duration_s,gpu_num\na,0,10,1\n"))
	f.Add([]byte("JobID|Submit|Start|End|AllocTRES\n1|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|gres/gpu=2,mem=1T\n"))
	f.Add([]byte("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\np,1,2,1,500,A|B,0,9\n"))
	f.Add([]byte("pod,t_s,gpu_util_pct,gpu_mem_mib\n0,0,1,2\n"))
	f.Add([]byte("sn,cpu_milli,memory_mib,gpu,model\na,1,2,3,T\n"))
	f.Add([]byte("\xef\xbb\xbfworkload,name,time,application,num_replicas\n1,a,1e3,bert,0.5\n"))
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := unpack(bytes.NewReader(data))
		if err != nil {
			return
		}
		tab, err := newTable("fuzz", r)
		if err != nil {
			return
		}
		if isNodeList(tab) {
			if nodes, err := readNodes("fuzz", bytes.NewReader(data)); err == nil && len(nodes) > 0 {
				fleet := workload.Fleet{Nodes: nodes}
				_ = fleet.Check() // must not panic whatever was read
			}
		}
		for _, form := range append(formats(), format{}) {
			pods := form.read == nil
			if pods != isSeries(tab) || !pods && (!tab.has(form.must...) || len(form.must) == 0 && known(tab) != nil) {
				continue
			}
			again, err := unpack(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			var w workload.Workload
			var rep Report
			o := Options{}
			if err := o.readRows("fuzz", again, form, pods, &w, &rep); err != nil {
				continue
			}
			o.settle(&w, list{form: form})
			if err := w.Check(); err != nil {
				t.Fatalf("%s: a job came out that no simulation takes: %v", form.name, err)
			}
		}
	})
}
