package sbatch

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// berthFlags are some of Berth's flags, as its command line has them.
var berthFlags = []Option{
	{"name", 'J', NeedsArg}, {"mem", 0, NeedsArg}, {"cpus", 'c', NeedsArg}, {"time", 't', NeedsArg}, {"expect", 0, NeedsArg},
	{"image", 0, NeedsArg}, {"gpus", 'G', NeedsArg}, {"gpu-type", 0, NeedsArg}, {"gpu-mem", 0, NeedsArg}, {"gpu-util", 0, NeedsArg},
	{"exclusive", 0, MayArg}, {"mount", 0, NeedsArg}, {"tmp", 0, NeedsArg}, {"model", 0, NeedsArg}, {"batch", 0, NeedsArg}, {"steps", 0, NeedsArg}, {"optimizer", 0, NeedsArg},
}

// corpora are two sets of scripts, each with what sbatch 22.05 made of them: one
// for the corners of the syntax, and one as people write them.
var corpora = map[string]string{"corpus": "testdata/slurm-22.05.txt", "real": "testdata/slurm-22.05-real.txt"}

// corpus reads the scripts of a folder of testdata.
func corpus(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 60 {
		t.Fatalf("%d scripts", len(files))
	}
	out := map[string][]byte{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".sh")] = data
	}
	return out
}

// TestCorpus holds what becomes of every directive of every script.
func TestCorpus(t *testing.T) {
	t.Parallel()
	for folder := range corpora {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			testCorpus(t, folder)
		})
	}
}

func testCorpus(t *testing.T, folder string) {
	for name, data := range corpus(t, folder) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := transcript(Lint(data, berthFlags))
			path := filepath.Join("testdata", folder, name+".golden")
			golden.CheckFile(t, path, got)
		})
	}
}

func transcript(r *Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Worst())
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%d %s\n", f.Line, Outcome{Option: f.Option, Fate: f.Fate, Note: f.Note, Fix: f.Fix}.Line())
	}
	if r.Request == nil {
		return b.String()
	}
	v := reflect.ValueOf(*r.Request)
	for i := range v.NumField() {
		switch f := v.Type().Field(i).Name; {
		case f == "Own" || f == "Env" || v.Field(i).IsZero():
		default:
			fmt.Fprintf(&b, "%s %v\n", f, v.Field(i))
		}
	}
	for _, line := range r.Request.Env {
		fmt.Fprintln(&b, line)
	}
	for _, s := range r.Request.Own {
		fmt.Fprintf(&b, "own %s=%s\n", s.Name, s.Value)
	}
	return b.String()
}

// TestAsSlurmReads compares how directives are read with what sbatch 22.05
// printed of the same scripts (sbatch -v --test-only).
func TestAsSlurmReads(t *testing.T) {
	t.Parallel()
	for folder, record := range corpora {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			testAsSlurmReads(t, folder, record)
		})
	}
}

// ownReading are scripts that are read otherwise: what is ours to know, users
// and files of the machine that recorded, and #PBS and #BSUB lines, of which
// sbatch takes a part for its own.
var ownReading = []string{"gpu-mem-on-slurm-line", "uid", "uid-gid", "odd-corners", "pbs-leftovers", "lsf-leftovers"}

func testAsSlurmReads(t *testing.T, folder, record string) {
	recorded, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	scripts, seen := corpus(t, folder), 0
	for part := range strings.SplitSeq(strings.TrimPrefix(string(recorded), "== "), "\n== ") {
		name, text, _ := strings.Cut(part, "\n")
		if slices.Contains(ownReading, name) {
			continue
		}
		data, ok := scripts[name]
		if !ok {
			t.Errorf("%s: recorded, but not there", name)
			continue
		}
		seen++
		want, got := slurmSaid(text), weRead(data)
		if e := want["error"]; e != "" && strings.HasPrefix(got["error"], e) {
			continue // ours may go on with what is allowed
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-slurm +berth):\n%s", name, d)
		}
	}
	if seen < 60 {
		t.Errorf("%d scripts compared", seen)
	}
}

// chatter is what sbatch says and goes on.
var chatter = regexp.MustCompile(`^(error: Ignoring -S|Setting --cpu-bind|Number of tasks implicitly)`)

// plainly writes what both sides print in several ways in one.
func plainly(option, v string) string {
	switch option {
	case "mem", "mem-per-cpu":
		if n, err := ParseMem(strings.TrimSuffix(v, "?")); err == nil {
			return fmt.Sprintf("%d MiB", n)
		}
	case "begin", "deadline":
		return "(a time)"
	}
	return v
}

var optionLine = regexp.MustCompile(`^([a-z0-9-]+) +: (.*)$`)

// slurmSaid reads a record: options, or the first error alone.
func slurmSaid(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimRight(line, "\n"), "sbatch: ")
		if m := optionLine.FindStringSubmatch(line); m != nil {
			if m[1] != "hint" { // which the other recording lacks
				out[m[1]] = plainly(m[1], m[2])
			}
			continue
		}
		if chatter.MatchString(line) {
			continue
		}
		if msg := strings.TrimPrefix(strings.TrimPrefix(line, "error: "), "fatal: "); msg != "" {
			return map[string]string{"error": regexp.MustCompile(`^[a-z-]+\.sh: `).ReplaceAllString(msg, "")}
		}
	}
	return out
}

// sameWords are options whose values sbatch prints in words of its own.
var sameWords = map[string]string{
	"requeue": "requeue", "no-requeue": "no-requeue", "hold": "set", "parsable": "set", "contiguous": "set", "wait": "set", "ignore-pbs": "set",
	"begin": "(a time)", "deadline": "(a time)", "get-user-env": "0",
}

func weRead(data []byte) map[string]string {
	fail := func(msg string) map[string]string {
		line, _, _ := strings.Cut(msg, "\n")
		return map[string]string{"error": line}
	}
	script, err := Read(data)
	if err != nil {
		return fail(err.Error())
	}
	set, faults, _ := Scan(script.Slurm, FromSlurmLine, nil, false)
	// sbatch stops at the first option it cannot read or take.
	r := &resolver{req: &Request{}, tasks: 1}
	out := map[string]string{}
	for _, s := range set {
		if _, valid := r.one(s); !valid {
			o, _ := r.one(s)
			return fail(o.Note)
		}
		r.out = append(r.out, Outcome{From: s.From, Option: written(s)})
		v := s.Value
		if w, ok := sameWords[s.Name]; ok {
			v = w
		}
		out[s.Name] = plainly(s.Name, asPrinted(s.Name, v))
	}
	if len(faults) > 0 {
		return fail(faults[0].Msg)
	}
	if out["mem"] != "" && out["mem-per-cpu"] != "" {
		return fail("--mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.")
	}
	for _, silent := range []string{"test-only", "verbose", "quiet", "wrap", "hint"} {
		delete(out, silent)
	}
	if out["exclusive"] != "" && out["oversubscribe"] != "" {
		out["exclusive"] = "oversubscribe" // one setting, printed twice
	}
	return out
}

func asPrinted(name, v string) string {
	switch name {
	case "time", "time-min":
		limit, _, err := ParseTime(v)
		if err != nil {
			return err.Error()
		}
		limit = (limit + time.Minute - 1).Truncate(time.Minute)
		d, rest := limit/(24*time.Hour), limit%(24*time.Hour)
		s := fmt.Sprintf("%02d:%02d:%02d", rest/time.Hour, rest%time.Hour/time.Minute, rest%time.Minute/time.Second)
		if d > 0 {
			return fmt.Sprintf("%d-%s", d, s)
		}
		return s
	case "gres":
		if v == "none" {
			return v
		}
		return "gres:" + strings.ReplaceAll(v, ",", ",gres:")
	case "signal":
		return strings.Replace(v, "SIG", "", 1)
	case "exclusive":
		return "exclusive"
	case "oversubscribe":
		return "oversubscribe"
	case "open-mode":
		return v[:1]
	case "error", "output":
		if v == "none" {
			return "/dev/null"
		}
	case "cpu-freq":
		return strings.ToUpper(v[:1]) + v[1:]
	case "profile":
		if v == "all" {
			return "Energy,Lustre,Network,Task"
		}
		return strings.ToUpper(v[:1]) + v[1:]
	}
	return v
}
