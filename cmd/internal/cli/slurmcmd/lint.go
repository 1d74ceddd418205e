package slurmcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

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
		Short: "Say what becomes of Slurm's scripts",
		Long: "Say what becomes of each directive of batch scripts, and what to write instead of those\n" +
			"that would be refused. In directories every file is looked at that begins with #! and has\n" +
			"#SBATCH or #BERTH lines. Asks no coordinator. The exit code is 1 when a script would be refused.",
		Example: "  berth lint train.sh\n  berth lint --all ~/jobs\n  berth lint -o json /projects > lint.json",
		Args:    console.SomeArgs("a script or directory"),
		RunE:    func(_ *cobra.Command, args []string) error { return runLint(e, &o, args) },
	}
	console.AddFormat(cmd, &o.output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	cmd.Flags().BoolVar(&o.all, "all", false, "also what is honoured and mapped")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "as submit --strict: what is ignored is refused")
	return cmd
}

func runLint(e *console.Env, o *lintOptions, paths []string) error {
	files, err := scriptFiles(paths)
	if err != nil {
		return err
	}
	var views []*scriptView
	bad := 0
	for _, f := range files {
		v, err := lintFile(f)
		if err != nil {
			return err
		}
		if v.worst == sbatch.Refused || o.strict && v.worst == sbatch.Ignored {
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
			if v.worst == sbatch.Refused {
				e.Printf("%s\n", console.Escape(v.File))
			}
		}
	default:
		printLint(e, views, o.all)
	}
	if bad > 0 {
		return &console.ExitError{Code: console.ExitFailed}
	}
	return nil
}

// scriptFiles lists the files to look at, sorted within each path. Links are
// not followed, hidden folders not entered.
func scriptFiles(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, &console.ExitError{Code: console.ExitNotFound, Err: err}
		}
		if !st.IsDir() {
			out = append(out, p)
			continue
		}
		err = filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != p && strings.HasPrefix(d.Name(), "."):
				return filepath.SkipDir
			case !d.Type().IsRegular():
				return nil
			}
			if ok, err := looksLikeScript(path); err != nil || !ok {
				return err
			}
			out = append(out, path)
			return nil
		})
		if err != nil {
			return nil, &console.ExitError{Code: console.ExitFailed, Err: fmt.Errorf("look through %s: %w", console.ShortQuote(p), err)}
		}
	}
	return out, nil
}

// looksLikeScript reads two bytes of most files, and all of few.
func looksLikeScript(path string) (bool, error) {
	f, err := console.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil // gone, or somebody else's: nothing to submit for us
	}
	if err != nil {
		return false, err
	}
	head := make([]byte, 2)
	n, _ := f.Read(head)
	if err := f.Close(); err != nil || string(head[:n]) != "#!" {
		return false, err
	}
	data, err := console.ReadBounded(path, cluster.MaxScript)
	return err == nil && sbatch.IsBatch(data), err
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

// checkRequest finds what a submit would find wrong with the values together,
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
	if r.Spec.Name == "" {
		r.Spec.Name = "script"
	}
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
	e.Warnf("%s: %d run as they are, %d run with something ignored, %d would be refused",
		scripts, count[sbatch.Honoured], count[sbatch.Ignored], count[sbatch.Refused])
}
