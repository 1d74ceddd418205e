package simcmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim"
)

// maxPoints bounds the settings of one sweep.
const maxPoints = 10_000

func newSimSweepCmd(e *console.Env, c *client.Client) *cobra.Command {
	var o simOptions
	var vary []string
	cmd := &cobra.Command{
		Use:   "sweep --trace DIR --vary OPTION=A,B,…",
		Short: "Replay one trace with every combination of some options",
		Long: "Replay one trace with every combination of the values of one or more options. Any option of sim run\n" +
			"that affects the simulation may vary; dur-error is short for duration-error. Simulations run in\n" +
			"parallel and are listed in the order of the values.",
		Example: "  berth sim sweep --trace ./muri --vary max-shares=1,2,3,4 --vary dur-error=0,0.25,0.5 --seeds 5\n" +
			"  berth sim sweep --trace ./openb-2023 --demand 1.3 --vary policy=ffd,fgd,firstfit -o csv",
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runSweep(cmd, e, c, &o, vary)
		},
	}
	cmd.Flags().StringArrayVar(&vary, "vary", nil, "`OPTION=A,B,…` to vary over these values; repeatable")
	o.policyFlag(cmd.Flags())
	o.flags(cmd, console.FormatTable, console.FormatJSON, formatCSV, console.FormatYAML)
	return cmd
}

// variation is an option with its values.
type variation struct {
	name   string
	values []string
}

// readVariations reads --vary and checks names against what may vary.
func readVariations(vary []string, known *pflag.FlagSet) ([]variation, error) {
	if len(vary) == 0 {
		return nil, console.Usagef("--vary is missing; name an option and its values, such as max-shares=1,2,3")
	}
	var out []variation
	points := 1
	for _, s := range vary {
		name, list, ok := strings.Cut(s, "=")
		name = strings.TrimLeft(name, "-")
		if name == "dur-error" {
			name = "duration-error"
		}
		if !ok || list == "" {
			return nil, console.Usagef("--vary %s: want OPTION=A,B,…, such as max-shares=1,2,3", console.ShortQuote(s))
		}
		if known.Lookup(name) == nil {
			var names []string
			known.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			return nil, console.Usagef("--vary %s: this option cannot vary; those that can are %s", console.ShortQuote(name), strings.Join(names, ", "))
		}
		if slices.ContainsFunc(out, func(v variation) bool { return v.name == name }) {
			return nil, console.Usagef("--vary %s: given twice; give all its values at once", name)
		}
		v := variation{name, strings.Split(list, ",")}
		if points *= len(v.values); points > maxPoints {
			return nil, console.Usagef("--vary: more than %d combinations", maxPoints)
		}
		out = append(out, v)
	}
	return out, nil
}

// settings returns all combinations of values, the last option varying fastest.
func settings(vs []variation) [][]string {
	out := [][]string{nil}
	for _, v := range vs {
		var next [][]string
		for _, s := range out {
			for _, x := range v.values {
				next = append(next, append(slices.Clone(s), x))
			}
		}
		out = next
	}
	return out
}

// sweepView is what sweep prints.
type sweepView struct {
	Cluster []string      `json:"cluster"`
	Notes   []string      `json:"notes,omitempty"`
	Vary    []string      `json:"vary"`
	Results []sweepResult `json:"results"`
	Summary []Summary     `json:"summary"`
}

// sweepResult is a result with the values that produced it.
type sweepResult struct {
	Options map[string]string `json:"options"`
	*sim.Result
}

// variedRow holds the names and values of what varied, for CSV.
type variedRow struct{ names, values []string }

func runSweep(cmd *cobra.Command, e *console.Env, c *client.Client, o *simOptions, vary []string) error {
	known := pflag.NewFlagSet("sweep", pflag.ContinueOnError)
	scratch := simOptions{}
	scratch.worldFlags(known)
	scratch.policyFlag(known)
	vs, err := readVariations(vary, known)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	all := settings(vs)
	points, err := o.points(cmd.Context(), e, c, vs, all)
	if err != nil {
		return err
	}
	var tasks []*simTask
	var names []string
	for i, p := range points {
		names = append(names, settingName(vs, all[i]))
		for s := range uint64(o.seeds) {
			tasks = append(tasks, &simTask{point: p, policy: p.policy, seed: o.seed + s})
		}
	}
	if err := o.runAll(cmd.Context(), e, tasks); err != nil {
		return err
	}
	if err := o.drawAll(tasks, names); err != nil {
		return err
	}
	v := sweepView{Vary: vary}
	for _, p := range points {
		v.Cluster, v.Notes = addNew(v.Cluster, []string{p.why}), addNew(v.Notes, p.notes)
	}
	for _, t := range tasks {
		v.Notes = addNew(v.Notes, t.notes)
	}
	return v.print(e, console.Format(o.output), vs, all, tasks, o.seeds)
}

// points prepares the settings; a value that an option rejects is an error.
func (o *simOptions) points(ctx context.Context, e *console.Env, c *client.Client, vs []variation, all [][]string) ([]*simPoint, error) {
	have := map[simWorld]*simSource{}
	var out []*simPoint
	for _, values := range all {
		w := simWorld{}
		f := pflag.NewFlagSet("point", pflag.ContinueOnError)
		w.worldFlags(f)
		w.policyFlag(f)
		w = o.simWorld // the flags' targets start from the given values
		for i, v := range vs {
			if err := f.Set(v.name, values[i]); err != nil {
				return nil, console.Usagef("--vary %s=%s: %s", v.name, console.ShortQuote(values[i]), err.Error())
			}
		}
		p, err := w.prepare(ctx, e, c, have)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", settingName(vs, values), err)
		}
		out = append(out, p)
	}
	return out, nil
}

// settingName returns "a=1 b=2".
func settingName(vs []variation, values []string) string {
	var out []string
	for i, v := range vs {
		out = append(out, v.name+"="+values[i])
	}
	return strings.Join(out, " ")
}

func (v *sweepView) print(e *console.Env, f console.Format, vs []variation, all [][]string, tasks []*simTask, seeds int) error {
	var names []string
	for _, x := range vs {
		names = append(names, x.name)
	}
	var plain []*sim.Result
	var rows []variedRow
	for i, values := range all {
		options := map[string]string{}
		for k, x := range values {
			options[names[k]] = x
		}
		var rs []*sim.Result
		for _, t := range tasks[i*seeds : (i+1)*seeds] {
			rs = append(rs, t.result)
			v.Results = append(v.Results, sweepResult{options, t.result})
			rows = append(rows, variedRow{names, values})
		}
		plain = append(plain, rs...)
		s, err := summarize(rs[0].Policy, options, rs)
		if err != nil {
			return err
		}
		v.Summary = append(v.Summary, s)
	}
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	if f == formatCSV {
		return printSimCSV(e, plain, rows)
	}
	v.table(e, names, all)
	return nil
}

// table prints one row per setting, with half of the 95 % interval if there
// are several seeds.
func (v *sweepView) table(e *console.Env, names []string, all [][]string) {
	shown := []struct{ head, name string }{
		{"ALLOC_%", "allocation_pct"}, {"UTIL_%", "gpu_util_pct"}, {"MEAN_JCT", "mean_jct_s"}, {"P99_JCT", "p99_jct_s"}, {"MAKESPAN", "makespan_s"},
		{"WAIT", "mean_wait_s"}, {"SLOWDOWN", "mean_slowdown"}, {"OOM", "ooms"}, {"PREEMPT", "preemptions"},
	}
	if slices.ContainsFunc(v.Results, func(r sweepResult) bool { return r.ReservedOverUsed != nil }) {
		shown = append(shown, struct{ head, name string }{"CUT", "cuts"}, struct{ head, name string }{"GROWN", "growths"}, struct{ head, name string }{"HARMED", "harmed"}, struct{ head, name string }{"RESERVED/USED", "reserved_over_used"})
	}
	t := &console.Table{}
	for _, n := range names {
		t.Cols = append(t.Cols, console.Column{Head: strings.ToUpper(n)})
	}
	t.Cols = append(t.Cols, console.Column{Head: "SEEDS", Right: true})
	for _, c := range shown {
		t.Cols = append(t.Cols, console.Column{Head: c.head, Right: true})
	}
	for i, s := range v.Summary {
		row := append(slices.Clone(all[i]), strconv.Itoa(s.Seeds))
		for _, c := range shown {
			row = append(row, meanCI(s.Mean, s.CI95, c.name))
		}
		t.Add(row...)
	}
	t.Print(e)
	e.Printf("\ncluster: %s\n", console.Escape(strings.Join(v.Cluster, "; ")))
	for _, n := range v.Notes {
		e.Printf("note: %s\n", console.Escape(n))
	}
}
