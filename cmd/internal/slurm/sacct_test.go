package slurm

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSacct: widths, cutting and delimiters as the manual of sacct 22.05
// describes them.
func TestSacct(t *testing.T) {
	jobs := session(t, 4*time.Second)[:2]
	jobs[1].State, jobs[1].Code, jobs[1].Ended, jobs[1].Signal = "CANCELLED by 1000", "CA", at(t, "10:41:23"), 15
	for _, c := range []struct {
		name string
		a    Sacct
		want string
	}{
		{"own", Sacct{}, "" +
			"JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n" +
			"------------ ---------- ---------- ---------- ---------- ---------- -------- \n" +
			"1                 train       main                     1    RUNNING      0:0 \n" +
			"2            a-rather-+       main                     2 CANCELLED+      0:0 \n"},
		{"parsable2", Sacct{Layout: Layout{Parsable2: true, NoHead: true}, Format: "jobid,state,elapsed,nodelist"}, "1|RUNNING|00:00:04|n1\n2|CANCELLED by 1000|00:00:04|n2\n"},
		{"parsable", Sacct{Layout: Layout{Parsable: true, Delimiter: ";"}, Format: "JobID,End"}, "JobID;End;\n1;Unknown;\n2;2026-11-21T10:41:23;\n"},
		{"widths", Sacct{Layout: Layout{NoHead: true}, Format: "JobName%-6,State%20"}, "train               RUNNING \na-rat+    CANCELLED by 1000 \n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got strings.Builder
			if err := c.a.Print(&got, jobs); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
	if err := (&Sacct{Format: "JobID,Nosuch"}).Print(&strings.Builder{}, jobs); err == nil || !strings.Contains(err.Error(), `"Nosuch"`) {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

// TestAccountedExits: a job that was cancelled, or had its time, is entered before its
// script has ended, as recorded with 22.05.8; how that ended stands with the step.
func TestAccountedExits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ state, want string }{
		{"CANCELLED by 1000", "2|CANCELLED by 1000|0:0|0:0\n2.batch|CANCELLED|0:15|\n"},
		{"TIMEOUT", "2|TIMEOUT|0:0|0:0\n2.batch|CANCELLED|0:15|\n"},
		{"FAILED", "2|FAILED|0:15|0:15\n2.batch|FAILED|0:15|\n"},
	} {
		j := session(t, 4*time.Second)[1]
		j.State, j.Started, j.Ended, j.ExitCode, j.Signal = tc.state, at(t, "10:41:19"), at(t, "10:41:23"), 143, 15
		step, _ := j.Batch()
		var got strings.Builder
		a := Sacct{Layout: Layout{Parsable2: true, NoHead: true}, Format: "jobid,state,exitcode,derivedexitcode"}
		if err := a.Print(&got, []Job{j, step}); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.want, got.String()); d != "" {
			t.Errorf("%s (-want +got)\n%s", tc.state, d)
		}
	}
}

// Print writes the jobs with a printer that is made for them.
func (a *Sacct) Print(w io.Writer, jobs []Job) error {
	p, err := a.Printer(w)
	if err != nil {
		return err
	}
	return p.Print(jobs)
}
