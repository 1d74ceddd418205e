package statuscmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewWebCmd returns the command web.
func NewWebCmd(e *console.Env, c *client.Client) *cobra.Command {
	return console.Formatted(&cobra.Command{
		Use: "web", Short: "Print a link that opens the web page, logged in as you",
		Long: "Print a link that opens the cluster's web page, logged in as you. It works once, within a minute, and\n" +
			"whoever opens it acts as you until they log out, for at most twelve hours: give it to nobody.",
		Example: "  berth web\n  xdg-open \"$(berth web -o name)\"",
		Args:    console.NoArgs,
	}, client.Bound(e, c, runWeb), console.FormatTable, console.FormatName, console.FormatJSON, console.FormatYAML)
}

// webView is a link, in JSON.
type webView struct {
	URL         string `json:"url" yaml:"url"`
	Coordinator string `json:"coordinator" yaml:"coordinator"`
	Expires     string `json:"expires" yaml:"expires"`
}

func runWeb(ctx context.Context, e *console.Env, c *client.Client, f console.Format, _ []string) error {
	link, err := client.CreateLink.Ask(ctx, c, client.Reads, &apiv1.CreateLinkRequest{})
	if err != nil {
		return err
	}
	if link.GetUrl() == "" {
		return cluster.Errorf(cluster.CodeInternal, "the coordinator's answer has no link")
	}
	if f == console.FormatName {
		_, err := fmt.Fprintln(e.Stdout, link.Url)
		return err
	}
	v := webView{URL: link.Url, Coordinator: link.Coordinator, Expires: link.Expires.AsTime().UTC().Format("2006-01-02T15:04:05Z")}
	if done, err := console.PrintList(e, f, v); done {
		return err
	}
	_, err = fmt.Fprintf(e.Stdout, "%s\n\nOpen it in a browser within a minute. It works once, and only for you.\n", link.Url)
	return err
}
