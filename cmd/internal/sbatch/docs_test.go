package sbatch

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// said are rows of the table in docs/slurm.md for options whose fate depends
// on their value; the others are made from the rules.
var said = map[string][2]string{
	"job-name":        {"honoured", "names of more than 63 bytes, or with a slash, are adapted"},
	"output":          {"honoured", "with every pattern; without it `slurm-%j.out`"},
	"error":           {"honoured", "with every pattern; without it where the output goes"},
	"input":           {"honoured", "with every pattern; without it `/dev/null`"},
	"export":          {"honoured", "`ALL`, `NONE`, `NIL` or a list"},
	"wrap":            {"honoured", "a script of one command, as sbatch makes it"},
	"deadline":        {"honoured", "refused unless the job can end by then; a time of day that has passed is tomorrow's"},
	"open-mode":       {"honoured", "`append` is what is done without it"},
	"gres":            {"honoured or refused", "`gpu[:type]:n`; a type is mapped to the cluster's only type of that name. Shards, MPS and other resources are refused"},
	"gpus":            {"honoured", "`[type:]n`, in all; as many on each of several nodes"},
	"gpus-per-task":   {"mapped", "times the number of tasks"},
	"cpus-per-gpu":    {"mapped", "times the number of GPUs"},
	"mem":             {"honoured or mapped", "0, all memory of a node: the job's memory is not capped, and `--exclusive` keeps others off its nodes"},
	"mem-per-cpu":     {"mapped", "times the number of cores"},
	"mem-per-gpu":     {"mapped", "host memory, times the number of GPUs; see `--gpu-mem` for the GPU's own"},
	"ntasks":          {"mapped", "times `--cpus-per-task` cores; on one node the script runs once, on several once for each task"},
	"ntasks-per-node": {"mapped", "the number of tasks on each node"}, "tasks-per-node": {"mapped", "the number of tasks on each node"},
	"ntasks-per-gpu": {"mapped", "tasks for each GPU"}, "ntasks-per-tres": {"mapped", "tasks for each GPU"},
	"nodes":               {"honoured or refused", "1 to 256; of a range the least"},
	"time":                {"honoured", "every form, rounded up to minutes; more than 30 days is refused"},
	"exclusive":           {"honoured or ignored", "whole nodes for itself; `user` and `mcs` are ignored: who shares a GPU with whom is the site's policy"},
	"nodelist":            {"honoured or refused", "a list such as `gpu[01-04]`, of all of which the job gets a part; a file of names is refused"},
	"partition":           {"honoured or mapped", "of the cluster's, see `berth partition list`; of several the first that takes the job and is up. A cluster without partitions takes no notice, and says so"},
	"clusters":            {"honoured or ignored", "`berth`, which the answer then names as Slurm's does; others are ignored, there is one cluster"},
	"cluster":             {"honoured or ignored", "as `--clusters`"},
	"begin":               {"honoured", ""},
	"kill-on-invalid-dep": {"honoured", ""},
	"dependency":          {"honoured or refused", "`after`, `afterany`, `afterok`, `afternotok` and `singleton`, `aftercorr` and `after:ID+MINUTES`, of jobs, arrays and tasks as 12_3, joined by `,` or `?`; `afterburstbuffer` and `expand` are refused, and jobs that are not known at the submit"},
	"array":               {"honoured", "every form, with `%N`; at most `limits.array_tasks` tasks, 100,000 unless the site says otherwise"},
	"signal":              {"honoured or mapped", "`B:` sends it to the script's shell alone; else every process of the job gets it but that shell; KILL, STOP and real-time signals are ignored, and one that would come no later than the start"},
	"mail-type":           {"honoured", "where the site sends mail; nothing is staged out, so STAGE_OUT never comes"},
	"mail-user":           {"honoured or refused", "up to five addresses of letters, digits and `._+=-`, with commas between them"},
	"help":                {"honoured", ""}, "usage": {"honoured", ""}, "version": {"honoured", ""},
}

func docsTable() string {
	var b strings.Builder
	b.WriteString("| option | outcome | what becomes of it |\n| --- | --- | --- |\n")
	for _, o := range slurmOptions {
		name := "`--" + o.Name + "`"
		if o.Short != 0 {
			name += ", `-" + string(o.Short) + "`"
		}
		r := rules()[o.Name]
		row, ok := said[o.Name]
		if !ok {
			row = [2]string{r.fate.String(), r.note}
			if r.fix != "" {
				row[1] += "; " + r.fix
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, row[0], row[1])
	}
	return b.String()
}

// unhonoured is the part of the table of what is ignored or refused.
func unhonoured() string {
	var b strings.Builder
	for i, line := range strings.SplitAfter(docsTable(), "\n") {
		cells := strings.Split(line, " | ")
		if i < 2 || len(cells) == 3 && (strings.Contains(cells[1], "ignored") || strings.Contains(cells[1], "refused")) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestDocs holds the documentation to the rules. With -update the tables there
// are written again.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, d := range []struct{ path, begin, end, table string }{
		{"../../../docs/slurm.md", "<!-- options: made by the tests of cmd/internal/sbatch -->\n\n", "\n<!-- end of options -->", docsTable()},
		{"../../../docs/migration.md", "<!-- refused: made by the tests of cmd/internal/sbatch -->\n\n", "\n<!-- end of refused -->", unhonoured()},
	} {
		data, err := os.ReadFile(d.path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, ok := strings.Cut(string(data), d.begin)
		table, after, closed := strings.Cut(rest, d.end)
		if !ok || !closed {
			// An empty table has lost the line that ends it.
			table, after, closed = strings.Cut(rest, strings.TrimPrefix(d.end, "\n"))
		}
		if !ok || !closed {
			t.Fatalf("%s has lost the marks around its table", d.path)
		}
		if golden.Updating() {
			table = d.table
			if err := os.WriteFile(d.path, []byte(before+d.begin+table+d.end+after), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(d.table, table); diff != "" {
			t.Errorf("%s:\n%s", d.path, diff)
		}
	}
}
