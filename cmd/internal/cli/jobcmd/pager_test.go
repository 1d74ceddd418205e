package jobcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestPager: what is listed goes through the user's pager on a terminal and nowhere
// else; one that is left at once, or is not there, spoils nothing.
func TestPager(t *testing.T) {
	t.Parallel()
	const paged = "sed 's/^/> /'"
	for name, c := range map[string]struct {
		terminal        bool
		pager, own      string
		first, complain string
	}{
		"on a terminal":  {true, paged, "", "> JOBID", ""},
		"Berth's own":    {true, "false", paged, "> JOBID", ""},
		"into a pipe":    {false, paged, "", "JOBID", ""},
		"no pager":       {true, "", "", "JOBID", ""},
		"cat":            {true, "cat", "", "JOBID", ""},
		"left at once":   {true, "exec true", "", "", ""},
		"not there":      {true, "/nonexistent/pager", "", "", "not found"},
		"an empty value": {true, " ", "", "JOBID", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			w.Env.IsTerminal = c.terminal
			w.Vars["PAGER"], w.Vars["BERTH_PAGER"] = c.pager, c.own
			for _, args := range [][]string{{"queue"}, {"queue", "-o", "wide"}} {
				code := w.Run(args...)
				if first := strings.TrimSpace(w.Out.String()); code != 0 || !strings.HasPrefix(first, c.first) || c.first == "" && first != "" {
					t.Errorf("%q: exit code %d, wrote %q, want %q", args, code, w.Out.String(), c.first)
				}
				if said := w.Errs.String(); c.complain == "" && said != "" || !strings.Contains(said, c.complain) {
					t.Errorf("%q: said %q, want %q", args, said, c.complain)
				}
			}
		})
	}
}
