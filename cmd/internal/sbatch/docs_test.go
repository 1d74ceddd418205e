package sbatch

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

func docsTable() string {
	var b strings.Builder
	b.WriteString("| option | outcome | what becomes of it |\n| --- | --- | --- |\n")
	for _, o := range slurmOptions {
		name := "`--" + o.Name + "`"
		if o.Short != 0 {
			name += ", `-" + string(o.Short) + "`"
		}
		outcome, note := fateOf(o.Name)
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, outcome, note)
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
