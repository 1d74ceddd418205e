package cli_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

const (
	jsonFrom = "<!-- json: made by the tests of cmd/internal/cli -->"
	jsonTo   = "<!-- end of json -->"
)

// fieldsOf lists the fields of what -o json prints, a line for each object; an
// object that is there twice is listed once.
func fieldsOf(where string, t reflect.Type, seen map[reflect.Type]string) []string {
	var names, below []string
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && name == "" {
				walk(f.Type)
				continue
			}
			names = append(names, "`"+name+"`")
			at, x := where+"."+name, f.Type
			for x.Kind() == reflect.Pointer || x.Kind() == reflect.Slice {
				if x.Kind() == reflect.Slice {
					at += "[]"
				}
				x = x.Elem()
			}
			if x.Kind() != reflect.Struct || x.PkgPath() == "time" {
				continue
			}
			if first, ok := seen[x]; ok {
				below = append(below, "- `"+at+"`: as `"+first+"`")
				continue
			}
			seen[x] = at
			below = append(below, fieldsOf(at, x, seen)...)
		}
	}
	walk(t)
	return append([]string{"- `" + where + "`: " + strings.Join(names, ", ")}, below...)
}

// TestJSONFieldsArePromised: the documentation lists what -o json prints, and
// promises that those names stay. With -update new ones are promised, too; taking
// one away breaks the promise.
func TestJSONFieldsArePromised(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/slurm.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), jsonFrom)
	have, after, closed := strings.Cut(rest, jsonTo)
	if !ok || !closed {
		t.Fatal("docs/slurm.md has lost the marks around the fields of -o json")
	}
	seen := map[reflect.Type]string{}
	lines := append(fieldsOf("jobs[]", reflect.TypeFor[view.JobView](), seen), fieldsOf("nodes[]", reflect.TypeOf(view.Nodes(nil)).Elem(), seen)...)
	want := "\n\n" + strings.Join(lines, "\n") + "\n\n"
	if golden.Updating() {
		if err := os.WriteFile(file, []byte(before+jsonFrom+want+jsonTo+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	printed := map[string]string{}
	for _, line := range lines {
		object, names, _ := strings.Cut(line, ": ")
		printed[object] = names + ","
	}
	promised := 0
	for line := range strings.SplitSeq(strings.TrimSpace(have), "\n") {
		object, names, _ := strings.Cut(line, ": ")
		for name := range strings.SplitSeq(names, ", ") {
			if promised++; !strings.Contains(printed[object], name+",") {
				t.Errorf("%s has no %s any more, which is promised", object, name)
			}
		}
	}
	if promised < 200 {
		t.Errorf("only %d names are promised", promised)
	}
}

// TestSlurmJSON: --json prints what the other options choose.
func TestSlurmJSON(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]any{
		"squeue --json":                    {12., 13., 14., 15.},
		"squeue --json --me":               {12., 14.},
		"squeue --json -j 12,14 -t R":      {12.},
		"squeue --json -t all -n old":      {16.},
		"squeue --json -n nosuch":          nil,
		"scontrol show job 14 --json":      {14.},
		"scontrol --json show job":         {12., 13., 14., 15., 16.},
		"sinfo --json":                     {"n1", "n2", "n3"},
		"sinfo --json -p debug":            {"n1"},
		"sinfo --json -n n1,n3 -t down":    nil,
		"scontrol show node n[1-2] --json": {"n1", "n2"},
	} {
		w := clitest.NewWorld(t)
		w.ServeParted("/a", clitest.NewParted())
		if code := w.Run(strings.Fields(line)...); code != 0 {
			t.Errorf("%s: exit code %d: %s", line, code, w.Errs.String())
			continue
		}
		var got struct {
			Meta   map[string]any
			Errors []any
			Jobs   []map[string]any
			Nodes  []map[string]any
		}
		if err := json.Unmarshal(w.Out.Bytes(), &got); err != nil || got.Meta["Slurm"] == nil || got.Errors == nil || (got.Jobs == nil) == (got.Nodes == nil) {
			t.Errorf("%s: %v in %s", line, err, w.Out.String())
			continue
		}
		var ids []any
		for _, x := range got.Jobs {
			ids = append(ids, x["job_id"])
		}
		for _, x := range got.Nodes {
			ids = append(ids, x["name"])
		}
		if d := cmp.Diff(want, ids); d != "" {
			t.Errorf("%s (-want +got):\n%s", line, d)
		}
	}
	w := clitest.NewWorld(t)
	w.Serve("/a", clitest.NewFake())
	if code := w.Run("scontrol", "show", "config", "--json"); code != 1 || !strings.Contains(w.Errs.String(), "show job and show node") {
		t.Errorf("scontrol show config --json: exit code %d: %s", code, w.Errs.String())
	}
}

// TestEnvironmentIsDocumented: of every variable that Slurm was recorded to set,
// the documentation says whether it is set here.
func TestEnvironmentIsDocumented(t *testing.T) {
	t.Parallel()
	names, err := os.ReadFile("../slurm/testdata/recorded/env_names.txt")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../../../docs/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "## What a job sees")
	text, _, ok := strings.Cut(text, "## Options")
	if !ok {
		t.Fatal("docs/slurm.md has lost its section on what a job sees")
	}
	for _, name := range strings.Fields(string(names)) {
		if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "`"+name+"=") {
			t.Errorf("docs/slurm.md does not say what becomes of %s", name)
		}
	}
}
