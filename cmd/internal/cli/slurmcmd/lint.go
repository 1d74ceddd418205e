package slurmcmd

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobspec"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
)

type lintOptions struct {
	output string
	all    bool
	strict bool
}

// findingView and scriptView are lint's JSON.
type findingView struct {
	Line    int    `json:"line"`
	Option  string `json:"option"`
	Outcome string `json:"outcome"`
	Note    string `json:"note"`
	Fix     string `json:"fix"`
}

type scriptView struct {
	File     string        `json:"file"`
	Outcome  string        `json:"outcome"`
	Findings []findingView `json:"findings"`
	worst    sbatch.Fate
}

// NewLintCmd returns the command lint.
func NewLintCmd(e *console.Env) *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint [flags] PATH…",
		Short: "Check how Slurm's batch scripts are handled",
		Long: "Report how each directive of batch scripts is handled, and what to write instead of those that would be\n" +
			"refused. In directories, files are checked that begin with #! or are named like scripts, and that have\n" +
			"#SBATCH or #BERTH lines. No coordinator is asked. Exits with 1 if a script would be refused.",
		Example: "  berth lint train.sh\n  berth lint --all ~/jobs\n  berth lint -o json /projects > lint.json",
		Args:    console.SomeArgs("a script or directory"),
		RunE:    func(_ *cobra.Command, args []string) error { return runLint(e, &o, args) },
	}
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	cmd.Flags().BoolVar(&o.all, "all", false, "also show what is honoured and mapped")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "like submit --strict: refuse what is ignored")
	return cmd
}

// bad reports whether a submit would refuse the script.
func (v *scriptView) bad(strict bool) bool {
	return v.worst == sbatch.Refused || strict && v.worst == sbatch.Ignored
}

func runLint(e *console.Env, o *lintOptions, paths []string) error {
	t, err := scriptFiles(paths)
	if err != nil {
		return err
	}
	var views []*scriptView
	bad := 0
	for _, f := range t.files {
		v, err := lintFile(f)
		if err != nil {
			return err
		}
		if v.bad(o.strict) {
			bad++
		}
		views = append(views, v)
	}
	done, err := console.PrintList(e, console.Format(o.output), views)
	switch {
	case err != nil:
		return err
	case done:
	case console.Format(o.output) == console.FormatName:
		for _, v := range views {
			if v.bad(o.strict) {
				e.Printf("%s\n", console.Escape(v.File))
			}
		}
	default:
		printLint(e, views, o.all)
	}
	if t.closed > 0 {
		e.Warnf("%s could not be read, such as: %s", console.Plural(t.closed, "file or folder", "files or folders"), console.Escape(t.first.Error()))
	}
	if bad > 0 {
		return &console.ExitError{Code: console.ExitFailed}
	}
	return nil
}

func lintFile(path string) (*scriptView, error) {
	data, err := console.ReadBounded(path, cluster.MaxScript)
	if err != nil {
		return nil, &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("script: %w", err)}
	}
	report := sbatch.Lint(data, jobspec.OwnOptions())
	if len(data) > cluster.MaxScript {
		report.Findings = append(report.Findings, sbatch.Finding{Option: "script", Fate: sbatch.Refused,
			Note: fmt.Sprintf("larger than %d bytes", cluster.MaxScript), Fix: "keep data in files beside it"})
	} else if report.Request != nil && report.Worst() != sbatch.Refused {
		if err := checkRequest(report.Request); err != nil {
			report.Findings = append(report.Findings, sbatch.Finding{Option: "script", Fate: sbatch.Refused, Note: err.Error()})
		}
	}
	slices.SortStableFunc(report.Findings, func(a, b sbatch.Finding) int { return a.Line - b.Line })
	v := &scriptView{File: path, worst: report.Worst(), Outcome: report.Worst().String(), Findings: []findingView{}}
	for _, f := range report.Findings {
		v.Findings = append(v.Findings, findingView{f.Line, f.Option, f.Fate.String(), f.Note, f.Fix})
	}
	return v, nil
}

// checkRequest finds what a submit would reject about the values together,
// and with those of Berth's own flags.
func checkRequest(a *sbatch.Request) error {
	r := &jobspec.Request{}
	r.Slurm.Asked = a
	r.TakeOver(a)
	r.OwnFlags(a)
	for _, t := range r.Flags {
		if err := t.F.Set(r, t.Text); err != nil {
			return fmt.Errorf("--%s: %w", t.F.Name, err)
		}
	}
	r.Spec.Command = []string{"script"}
	r.Spec.Name = cmp.Or(r.Spec.Name, "script")
	if !filepath.IsAbs(r.Spec.Dir) {
		r.Spec.Dir = ""
	}
	r.ImpliedGPUs()
	return r.Spec.Check()
}

func printLint(e *console.Env, views []*scriptView, all bool) {
	t := &console.Table{Cols: []console.Column{{Head: "WHERE"}, {Head: "OUTCOME"}, {Head: "OPTION", Shrink: true}, {Head: "WHY", Shrink: true}}}
	count := map[sbatch.Fate]int{}
	for _, v := range views {
		switch {
		case v.worst == sbatch.Refused, v.worst == sbatch.Ignored:
			count[v.worst]++
		default:
			count[sbatch.Honoured]++
		}
		for _, f := range v.Findings {
			if quiet := f.Outcome != sbatch.Refused.String() && f.Outcome != sbatch.Ignored.String(); quiet && !all {
				continue
			}
			where, why := v.File, f.Note
			if f.Line > 0 {
				where += fmt.Sprintf(":%d", f.Line)
			}
			if f.Fix != "" {
				why += "; " + f.Fix
			}
			t.Add(where, f.Outcome, f.Option, why)
		}
	}
	if len(t.Rows) > 0 {
		t.Print(e)
	}
	scripts := "1 script"
	if len(views) != 1 {
		scripts = fmt.Sprintf("%d scripts", len(views))
	}
	e.Warnf("%s: %d run as is, %d run with something ignored, %d would be refused",
		scripts, count[sbatch.Honoured], count[sbatch.Ignored], count[sbatch.Refused])
}
