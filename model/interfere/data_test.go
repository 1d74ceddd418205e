package interfere_test

import (
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/model/interfere"
)

func writeTable(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

const (
	singles   = "model,dataset,batchsize,amp,gpu_util,gmem_util\nNet,Set,32,0,50,20\nNet,Set,64,1,100,60.5\n"
	pairsHead = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"
	onePair   = "Net,Set,32,0,0.9,Net,Set,64,1,0.8\n"
)

func TestReadLucid(t *testing.T) {
	small := interfere.Job{Signature: "Net/Set/32/0", Family: "Net", Util: 0.5, Bandwidth: 0.2}
	big := interfere.Job{Signature: "Net/Set/64/1", Family: "Net", Util: 1, Bandwidth: 0.605}
	for _, tc := range []struct {
		name, singles, pairs string
		want                 []interfere.Pair
		err                  string
	}{
		{"a pair", singles, pairsHead + onePair, []interfere.Pair{{GPUType: "RTX-3090", A: small, B: big, SpeedA: 0.9, SpeedB: 0.8}}, ""},
		{"no pair", singles, pairsHead, []interfere.Pair{}, ""},
		{"unknown job", singles, pairsHead + strings.ReplaceAll(onePair, "64", "128"), nil, `line 2: job "Net/Set/128/1" is not in`},
		{"no header", singles, "", nil, "no header"},
		{"column missing", strings.Replace(singles, "gmem_util", "gmem", 1), pairsHead, nil, `no column "gmem_util"`},
		{"not a number", singles, pairsHead + onePair + strings.Replace(onePair, "0.8", "fast", 1), nil, `line 3: column "speed2"`},
		{"utilization not a number", strings.Replace(singles, "50,", "half,", 1), pairsHead, nil, `line 2: column "gpu_util"`},
		{"ragged", singles, pairsHead + "Net\n", nil, "wrong number of fields"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			writeTable(t, filepath.Join(dir, "lucid_single.csv.gz"), tc.singles)
			writeTable(t, filepath.Join(dir, "lucid_pairs.csv.gz"), tc.pairs)
			got, err := interfere.ReadLucid(dir)
			checkRead(t, err, tc.err)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("pairs differ (-want +got):\n%s", d)
			}
		})
	}
	if _, err := interfere.ReadLucid(t.TempDir()); err == nil {
		t.Error("an empty folder was read")
	}
}

func checkRead(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Fatalf("error %v, want %q", err, want)
	}
}

func TestReadGavel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.csv.gz")
	writeTable(t, path, "gpu_type,job1,job2,norm1,norm2\nv100,Net (batch size 16),Other,0.5,0.75\nk80,Net,Net,0.0,0.5\nk80,Net,Net,,\n")
	got, err := interfere.ReadGavel(path)
	checkRead(t, err, "")
	want := []interfere.Pair{{
		GPUType: "V100-SXM2-16GB", Mode: interfere.MPS,
		A:      interfere.Job{Signature: "Net (batch size 16)", Family: "Net", Util: interfere.Unknown, Bandwidth: interfere.Unknown},
		B:      interfere.Job{Signature: "Other", Family: "Other", Util: interfere.Unknown, Bandwidth: interfere.Unknown},
		SpeedA: 0.5, SpeedB: 0.75,
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("pairs differ (-want +got):\n%s", d)
	}
	writeTable(t, path, "gpu_type,job1,job2,norm1,norm2\nv100,A,B,much,0.75\n")
	_, err = interfere.ReadGavel(path)
	checkRead(t, err, `line 2: column "norm1"`)
	if err := os.WriteFile(path, []byte("gpu_type,job1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = interfere.ReadGavel(path)
	checkRead(t, err, "unpack")
}

// noise is pairs whose speeds follow nothing that was given: jobs of unknown
// load, and speeds made from a digest of the pair.
func noise(n int) []interfere.Pair {
	var out []interfere.Pair
	for a := range n {
		for b := range a + 1 {
			job := func(i int) interfere.Job {
				return interfere.Job{Signature: fmt.Sprint("s", i), Family: fmt.Sprint("f", i/2), Util: interfere.Unknown}
			}
			h := uint64(a*n+b+1) * 0x9e3779b97f4a7c15
			p := interfere.Pair{GPUType: fmt.Sprint("T", b%2), A: job(a), B: job(b)}
			p.SpeedA, p.SpeedB = 0.5+float64(h>>40%1000)/2000, 0.5+float64(h>>50%1000)/2000
			out = append(out, p)
		}
	}
	return out
}

// TestEvaluateDoesNotPeek: on pure noise no method beats the constant, even if
// each pair comes in both orders, so no test pair was learned from.
func TestEvaluateDoesNotPeek(t *testing.T) {
	pairs := noise(16)
	for _, p := range pairs {
		p.A, p.B, p.SpeedA, p.SpeedB = p.B, p.A, p.SpeedB, p.SpeedA
		pairs = append(pairs, p)
	}
	for _, split := range []interfere.Split{interfere.Random, interfere.UnseenFamilies, interfere.UnseenTypes} {
		rs := interfere.Evaluate(pairs, split, 7)
		if len(rs) != 4 {
			t.Fatalf("%s: %d results", split, len(rs))
		}
		for _, r := range rs {
			if r.Rows != 2*len(pairs) {
				t.Errorf("%s: %s has %d rows, want %d", split, r.Method, r.Rows, 2*len(pairs))
			}
		}
		if learned, constant := rs[0], rs[3]; learned.MAPE < 0.97*constant.MAPE {
			t.Errorf("%s: noise is predicted to %.3f, the constant to %.3f", split, learned.MAPE, constant.MAPE)
		}
		// Of unseen families nothing in particular can be known.
		if split == interfere.UnseenFamilies && rs[0].MAPE != rs[1].MAPE {
			t.Errorf("learned %v beyond the coefficients' %v of families never seen", rs[0].MAPE, rs[1].MAPE)
		}
		if d := cmp.Diff(rs, interfere.Evaluate(pairs, split, 7)); d != "" {
			t.Errorf("%s: a second evaluation differs:\n%s", split, d)
		}
	}
	for _, known := range []int{0, 6} {
		if rs := interfere.Newcomer(pairs, known, 7); len(rs) != 4 || rs[0].MAPE < 0.97*rs[3].MAPE {
			t.Errorf("newcomer after %d pairs: %v", known, rs)
		}
	}
	// Scoring on the training rows does look better: the check above can fail.
	if rs := interfere.Score(pairs, pairs); rs[0].MAPE > 0.9*rs[3].MAPE {
		t.Errorf("training rows: learned %.3f, constant %.3f", rs[0].MAPE, rs[3].MAPE)
	}
}

func TestScore(t *testing.T) {
	j := interfere.Job{Signature: "a", Util: 0}
	pair := func(a, b float64) interfere.Pair {
		return interfere.Pair{GPUType: "K80", Mode: interfere.MIG, A: j, B: j, SpeedA: a, SpeedB: b}
	}
	// Built-in MIG says 1 for all; the constant is 0.8.
	rs := interfere.Score([]interfere.Pair{pair(0.8, 0.8)}, []interfere.Pair{pair(1, 0.5), pair(0.8, 0.625)})
	want := map[string]interfere.Result{
		"built-in": {Method: "built-in", Rows: 4, MAPE: (0 + 1 + 0.25 + 0.6) / 4, Median: 0.25, P90: 1, Surprises: 0.5},
		"constant": {Method: "constant", Rows: 4, MAPE: (0.2 + 0.6 + 0 + 0.28) / 4, Median: 0.2, P90: 0.6},
	}
	for _, r := range rs {
		if w, ok := want[r.Method]; ok && cmp.Diff(w.String(), r.String()) != "" {
			t.Errorf("got  %v\nwant %v", r, w)
		}
	}
	if interfere.Score(nil, []interfere.Pair{pair(1, 1)}) != nil || interfere.Evaluate(nil, interfere.Random, 1) != nil {
		t.Error("results out of nothing")
	}
}
