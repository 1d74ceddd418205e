package modelcmd

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/view"
	"github.com/berth-scheduler/berth/cmd/internal/safefile"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// clusterModelCmds returns the subcommands about the cluster's weights.
func clusterModelCmds(e *console.Env, c *client.Client) []*cobra.Command {
	return []*cobra.Command{
		newModelListCmd(e, c), newModelShowCmd(e, c), newModelPinCmd(e, c), newModelUnpinCmd(e, c),
		newModelRollbackCmd(e, c), newModelExportCmd(e, c), newModelImportCmd(e, c),
	}
}

// MaxModelFile is the most that a coordinator accepts.
const MaxModelFile = 256 << 10

// parseVersion reads a version of the model, "12" or "v12".
func parseVersion(s string) (uint64, error) {
	text := s
	if len(s) > 1 && s[0] == 'v' {
		text = s[1:]
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, console.Usagef("version %s: want a number shown by berth model list; 0 is the built-in model", console.ShortQuote(s))
	}
	return n, nil
}

// optionalVersion returns the version named by the first argument, nil without one.
func optionalVersion(args []string) (*uint64, error) {
	if len(args) == 0 {
		return nil, nil
	}
	v, err := parseVersion(args[0])
	return &v, err
}

func atMostOneVersion(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return console.Usagef("takes one version, got %d arguments", len(args))
	}
	return nil
}

func newModelListCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the kept model versions, newest first",
		Example: "  berth model list\n  berth model list -o json",
		Args:    console.NoArgs,
	}, client.Bound(e, c, runModelList), console.FormatTable, console.FormatJSON, console.FormatYAML, console.FormatName)
}

func runModelList(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	resp, err := client.ListModels.Ask(ctx, c, client.Reads, &apiv1.ListModelsRequest{})
	if err != nil {
		return err
	}
	views := []modelView{}
	for _, m := range resp.GetModels() {
		views = append(views, viewModel(m))
	}
	if done, err := console.PrintRows(e, f, views, func(v modelView) string { return strconv.FormatUint(v.Version, 10) }); done {
		return err
	}
	t := &console.Table{Cols: []console.Column{
		{Head: "VERSION", Right: true}, {Head: "STATE"}, {Head: "AGE", Right: true}, {Head: "SOURCE"}, {Head: "SAMPLES", Right: true},
		{Head: "ERROR_BEFORE", Right: true}, {Head: "ERROR_AFTER", Right: true}, {Head: "SIZE", Right: true}, {Head: "SHA256"},
	}}
	for _, m := range resp.GetModels() {
		t.Add(strconv.FormatUint(m.GetVersion(), 10), modelState(m), modelAge(e, m), modelSource(m), modelSamples(m),
			modelError(m, m.GetErrorBefore()), modelError(m, m.GetErrorAfter()), sizeText(m.GetSizeBytes()), console.Cut(m.GetSha256(), 13))
	}
	t.Print(e)
	return nil
}

func newModelShowCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "show [VERSION]", Short: "Show a model version and how well it predicts this cluster",
		Long: "Show a model version, by default the one in use, and how predictions made at placement compare with\n" +
			"what the latest jobs used; values that users declared do not count. Then whether sharing pays on each\n" +
			"GPU type: the throughput of two jobs together, where taking turns is 1.",
		Example: "  berth model show\n  berth model show 3 -o yaml",
		Args:    atMostOneVersion,
	}, client.Bound(e, c, runModelShow), console.FormatTable, console.FormatJSON, console.FormatYAML)
}

func runModelShow(ctx context.Context, e *console.Env, c *client.Client, f console.Format, args []string) error {
	resp, err := getModel(ctx, c, args, false)
	if err != nil {
		return err
	}
	if done, err := console.PrintList(e, f, modelShowView{viewModel(resp.GetModel()), viewAccuracy(resp.GetAccuracy()), resp.GetSamples(), view.Interference(resp.GetInterference())}); done {
		return err
	}
	m := resp.GetModel()
	kv := []string{
		"Version", strconv.FormatUint(m.GetVersion(), 10), "State", modelState(m), "Source", modelSource(m), "Published", console.When(e, m.GetPublished()),
		"Size", sizeText(m.GetSizeBytes()), "SHA-256", m.GetSha256(),
	}
	if m.By != nil {
		kv = append(kv, "By", "uid "+strconv.FormatUint(uint64(m.GetBy()), 10))
	}
	if m.GetTested() > 0 {
		kv = append(kv, "Learned from", console.Plural(int(m.GetTrained()), "sample", "samples"),
			"Tried on", fmt.Sprintf("%s: median error %s before, %s after", console.Plural(int(m.GetTested()), "other", "others"),
				modelError(m, m.GetErrorBefore()), modelError(m, m.GetErrorAfter())))
	}
	console.KeyValues(e, "", append(kv, "Reason", m.GetReason())...)
	e.Printf("\nThis cluster now, by %s\n", console.Plural(int(resp.GetSamples()), "sample", "samples"))
	console.KeyValues(e, "  ", accuracyText(resp.GetAccuracy())...)
	view.PrintInterference(e, resp.GetInterference())
	return nil
}

func accuracyText(a *apiv1.Accuracy) []string {
	if a.GetRuns() == 0 && a.GetUtilRuns() == 0 && a.GetTimeRuns() == 0 {
		return []string{"Predictions", "none to compare yet"}
	}
	var kv []string
	if n := a.GetRuns(); n > 0 {
		kv = append(kv, "Memory", fmt.Sprintf("%s: mean error %s, median %s; %s stayed within the 95%% estimate",
			console.Plural(int(n), "run", "runs"), ratioText(a.GetMeanError()), ratioText(a.GetMedianError()), ratioText(a.GetWithinP95())))
	}
	for _, x := range []struct {
		name string
		n    uint32
		err  float64
	}{{"Utilization", a.GetUtilRuns(), a.GetUtilMedianError()}, {"Time", a.GetTimeRuns(), a.GetTimeMedianError()}} {
		if x.n > 0 {
			kv = append(kv, x.name, fmt.Sprintf("%s: median error %s", console.Plural(int(x.n), "run", "runs"), ratioText(x.err)))
		}
	}
	if n := a.GetOutOfMemory(); n > 0 {
		kv = append(kv, "Out of memory", console.Plural(int(n), "run", "runs"))
	}
	return kv
}

func getModel(ctx context.Context, c *client.Client, args []string, withWeights bool) (*apiv1.GetModelResponse, error) {
	version, err := optionalVersion(args)
	if err != nil {
		return nil, err
	}
	resp, err := client.GetModel.Ask(ctx, c, client.Reads, &apiv1.GetModelRequest{Version: version, WithWeights: withWeights})
	return resp, err
}

func newModelPinCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "pin [VERSION]", Short: "Pin a model version: nothing learned replaces it",
		Long: "Pin a version, by default the one in use: nothing learned replaces it until berth model unpin. Another\n" +
			"version is first put in use. Imports and rollbacks still work.",
		Example: "  berth model pin\n  berth model pin 3",
		Args:    atMostOneVersion,
		RunE: func(cmd *cobra.Command, args []string) error {
			version, err := optionalVersion(args)
			if err != nil {
				return err
			}
			return runModelPin(cmd.Context(), e, c, &apiv1.PinModelRequest{Version: version, Pinned: true}, "Repeating this is safe.")
		},
	}
}

func newModelUnpinCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "unpin", Short: "Unpin: let learned versions replace the one in use again",
		Example: "  berth model unpin",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runModelPin(cmd.Context(), e, c, &apiv1.PinModelRequest{}, "Repeating this is safe.")
		},
	}
}

func runModelPin(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.PinModelRequest, again string) error {
	resp, err := client.PinModel.Ask(ctx, c, client.Changes, req)
	if err != nil {
		return console.UnknownChange(err, again)
	}
	printModelLine(e, resp.GetModel())
	return nil
}

func newModelRollbackCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "rollback VERSION", Short: "Go back to a kept model version",
		Long: "Put a kept version back in use, as a new version. The cluster keeps learning from there; pin the\n" +
			"version (berth model pin) if it should not.",
		Example: "  berth model rollback 3\n  berth model rollback 0   # the built-in one",
		Args:    console.OneArg("version"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModelRollback(cmd.Context(), e, c, args[0])
		},
	}
}

func runModelRollback(ctx context.Context, e *console.Env, c *client.Client, arg string) error {
	version, err := parseVersion(arg)
	if err != nil {
		return err
	}
	resp, err := client.RollbackModel.Ask(ctx, c, client.Changes, &apiv1.RollbackModelRequest{Version: version})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	printModelLine(e, resp.GetModel())
	return nil
}

func newModelExportCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "export [VERSION] FILE", Short: "Export a model version to a file; - is standard output",
		Example: "  berth model export site.weights\n  berth model export 3 - | sha256sum",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return console.Usagef("takes a file, preceded by the version if not the one in use; got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModelExport(cmd.Context(), e, c, args[:len(args)-1], args[len(args)-1])
		},
	}
}

func runModelExport(ctx context.Context, e *console.Env, c *client.Client, version []string, path string) error {
	resp, err := getModel(ctx, c, version, true)
	if err != nil {
		return err
	}
	if len(resp.GetWeights()) == 0 {
		return cluster.Errorf(cluster.CodeInternal, "the coordinator's answer holds no weights")
	}
	if path == "-" {
		_, err := e.Out.Write(resp.GetWeights())
		return err
	}
	if err := safefile.Replace(path, resp.GetWeights(), 0o644); err != nil {
		return err
	}
	e.Printf("model version %d: %s written to %s\n", resp.GetModel().GetVersion(), sizeText(uint64(len(resp.GetWeights()))), console.Escape(path))
	return nil
}

func newModelImportCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Import an exported model and use it; - is standard input",
		Example: "  berth model import site.weights",
		Args:    console.OneArg("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runModelImport(cmd.Context(), e, c, args[0])
		},
	}
}

func runModelImport(ctx context.Context, e *console.Env, c *client.Client, path string) error {
	blob, err := readWeights(e, path)
	if err != nil {
		return err
	}
	resp, err := client.PublishModel.Ask(ctx, c, client.Changes, &apiv1.PublishModelRequest{Weights: blob})
	if err != nil {
		return console.UnknownChange(err, "Repeating this is safe.")
	}
	printModelLine(e, resp.GetModel())
	return nil
}

// readWeights reads weights, which the coordinators check: only the version
// that uses them knows which are valid.
func readWeights(e *console.Env, path string) ([]byte, error) {
	if path != "-" {
		blob, err := safefile.Read(path, MaxModelFile)
		if err != nil {
			return nil, console.Usagef("import: %w; want a file from berth model export, at most %d KiB", err, MaxModelFile>>10)
		}
		return blob, nil
	}
	blob, err := io.ReadAll(io.LimitReader(e.Stdin, MaxModelFile+1))
	if err == nil && len(blob) > MaxModelFile {
		return nil, console.Usagef("import: standard input has more than %d KiB; want the output of berth model export", MaxModelFile>>10)
	}
	return blob, err
}
