package studycmd

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewStudyCmd returns the command study.
func NewStudyCmd(e *console.Env, c *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use: "study", Short: "Search hyperparameters with early stopping",
		Long: "A study is an array of trials, each with its own values for the parameters of a search space. Trials\n" +
			"report their progress in BERTH_PROGRESS, and those that do worse than others end early.",
		Example: "  berth study create sweep.yaml\n  berth study list\n  berth study show 12\n  berth cancel 12",
	}
	cmd.AddCommand(newCreateCmd(e, c), newListCmd(e, c), newShowCmd(e, c))
	return cmd
}

func newCreateCmd(e *console.Env, c *client.Client) *cobra.Command {
	o := jobcmd.SubmitOptions{Count: "1", Study: true}
	cmd := &cobra.Command{
		Use: "create FILE.yaml [flags] [-- COMMAND [ARG…]]", Short: "Submit a study",
		Long: "Submit a study. FILE is a spec file,as for berth submit, with a key study:\n" +
			"\n" +
			"  command: [python3, train.py, --lr, \"{lr}\"]\n" +
			"  gpus: 1\n" +
			"  study:\n" +
			"    metric: loss              # a key of the lines in BERTH_PROGRESS\n" +
			"    goal: minimize            # or maximize\n" +
			"    trials: 60\n" +
			"    at_once: 8\n" +
			"    space:\n" +
			"      lr: {log: [1e-5, 0.1]}\n" +
			"      dropout: {uniform: [0, 0.5]}\n" +
			"      layers: {int: [1, 8]}\n" +
			"      width: [64, 128, 256]\n" +
			"    sampling: random          # or grid\n" +
			"    seed: 1\n" +
			"    stop: asha                # or hyperband, median, pbt, none\n" +
			"    first: 10                 # the step at which trials are first compared,\n" +
			"    eta: 3                    # then at 30, 90, …; one in three continues\n" +
			"    budget: 20                # GPU-hours of all trials\n" +
			"\n" +
			"{lr} in the command stands for the trial's value, which is also in BERTH_PARAM_LR and BERTH_PARAMS (JSON).",
		Example: "  berth study create sweep.yaml\n  berth study create sweep.yaml --array 5,17   # these trials again",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return jobcmd.RunSubmit(cmd.Context(), e, c, &o, args, cmd.ArgsLenAtDash())
		},
	}
	o.Register(cmd)
	cmd.Args = cobra.MinimumNArgs(1)
	return cmd
}

func newListCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List your studies",
		Example: "  berth study list\n  berth study list --all -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &apiv1.ListJobsRequest{Finished: true, Brief: true, Trials: true}
			if !all {
				req.Users = []string{e.User()}
			}
			jobs, err := client.ListJobs(cmd.Context(), c, req)
			if err != nil {
				return err
			}
			return printStudies(e, console.Format(output), summaries(jobs))
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include those of other users")
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
	return cmd
}

func newShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output string
	var all bool
	cmd := &cobra.Command{
		Use: "show [STUDY]", Short: "Show a study's trials, best first",
		Long:    "Show a study's trials, best first; without an id, your latest study.",
		Example: "  berth study show 12\n  berth study show 12 -o csv > trials.csv",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := oneStudy(cmd.Context(), e, c, args)
			if err != nil {
				return err
			}
			s, err := read(cmd.Context(), c, id)
			if err != nil {
				return err
			}
			return s.print(e, console.Format(output), all)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "show all trials, however many")
	console.AddFormat(cmd, &output, console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatCSV)
	return cmd
}

// oneStudy returns the study that args name, or the user's latest.
func oneStudy(ctx context.Context, e *console.Env, c *client.Client, args []string) (uint64, error) {
	if len(args) > 0 {
		return console.ParseID(args[0])
	}
	jobs, err := client.ListJobs(ctx, c, &apiv1.ListJobsRequest{Finished: true, Brief: true, Trials: true, Users: []string{e.User()}})
	if err != nil {
		return 0, err
	}
	if len(jobs) == 0 {
		return 0, cluster.Errorf(cluster.CodeNotFound, "you have no studies; create one with: berth study create FILE.yaml")
	}
	id := jobs[len(jobs)-1].GetArrayJobId()
	e.Warnf("study %s, your latest", strconv.FormatUint(id, 10))
	return id, nil
}
