package top

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/frame"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/top/screen"
)

// Program is berth-top.
func Program() frame.Program {
	return frame.Program{Name: programs.Top, Example: "berth top", Commands: []frame.Command{
		{Name: "top", New: newTopCmd},
		{Name: "gpu", New: newGPUCmd},
		{Name: "version", New: frame.Local(frame.NewVersionCmd)},
	}}
}

// options are the flags.
type options struct {
	tab       string
	me, ascii bool
}

// tabs are the names that --tab takes, in the order of the screen.
var tabs = []string{"jobs", "gpus", "nodes", "users", "events"}

func newTopCmd(e *console.Env, _ *client.Client) *cobra.Command {
	o := options{tab: tabs[screen.TabJobs]}
	cmd := &cobra.Command{
		Use: "top", Short: "Watch jobs, GPUs, nodes and users on a live screen",
		Long: "Watch jobs, GPUs, nodes and users on a live screen, and act on them: l shows a job's output, e opens a\n" +
			"shell in it, d cancels it, D drains a node or a GPU; ? lists all keys. Enter shows why a job waits or\n" +
			"where it runs, its log, and up to ten minutes of its GPU, recorded since the screen opened. It follows\n" +
			"one stream of changes from any coordinator, and switches to another if that one is lost.\n" +
			"NO_COLOR=1 turns colours off; without a UTF-8 locale it draws in ASCII.",
		Example: "  berth top\n  berth top --me\n  berth top --tab nodes",
		Args:    console.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), e, o) },
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.tab, "tab", o.tab, "start on this `TAB`: "+strings.Join(tabs, ", "))
	return cmd
}

func newGPUCmd(e *console.Env, _ *client.Client) *cobra.Command {
	o := options{tab: tabs[screen.TabGPUs]}
	cmd := &cobra.Command{
		Use: "top", Short: "Watch the GPUs on a live screen",
		Long:    "Watch the GPUs on a live screen: berth top, opened at the GPUs.",
		Example: "  berth gpu top\n  berth gpu top --me",
		Args:    console.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), e, o) },
	}
	o.flags(cmd)
	group := &cobra.Command{Use: "gpu"}
	group.AddCommand(cmd)
	return group
}

func (o *options) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.me, "me", false, "start with only your jobs and the GPUs they use")
	cmd.Flags().BoolVar(&o.ascii, "ascii", false, "draw in ASCII")
}

// config checks that there is a terminal to draw on, and returns how to draw.
func (o *options) config(e *console.Env) (screen.Config, error) {
	tab := slices.Index(tabs, o.tab)
	if tab < 0 {
		return screen.Config{}, console.Usagef("--tab %s: want one of %s%s", console.ShortQuote(o.tab), strings.Join(tabs, ", "), console.DidYouMean(o.tab, tabs))
	}
	const instead = "; berth queue, berth gpu list and berth status print the same once, and berth queue -w keeps updating"
	if _, ok := e.StdinTerminal(); !ok || !e.IsTerminal {
		return screen.Config{}, console.Usagef("standard input and output must be a terminal%s", instead)
	}
	switch term := e.Getenv("TERM"); term {
	case "":
		return screen.Config{}, console.Usagef("TERM is not set, so the terminal's capabilities are not known; set it, for example to xterm-256color%s", instead)
	case "dumb", "unknown":
		return screen.Config{}, console.Usagef("this terminal (TERM is %s) cannot move its cursor%s", term, instead)
	}
	return screen.Config{
		Tab: screen.Tab(tab), Mine: o.me, Me: e.User(), Plain: e.Getenv("NO_COLOR") != "", ASCII: o.ascii || !utf8Locale(e.Getenv), Now: e.Now(),
	}, nil
}

// utf8Locale reports whether the locale says that the terminal shows UTF-8.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// run shows the screen until the user leaves it, or ctx ends.
func run(ctx context.Context, e *console.Env, o options) error {
	cfg, err := o.config(e)
	if err != nil {
		return err
	}
	return show(ctx, e, screen.New(cfg))
}
