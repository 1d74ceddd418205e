package admin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// NewDenyCmd returns the command deny.
func NewDenyCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "deny [node|gate|coordinator NAME | serial NUMBER]", Short: "Revoke a daemon's certificates, or list what is revoked",
		Long: "Revoke a daemon's certificates: its connections are closed at once, it cannot connect again, and its\n" +
			"certificates are not renewed. Jobs on a node with a revoked certificate are lost once its lease expires;\n" +
			"drain the node first if that can wait. To revoke a single leaked certificate, give its serial number\n" +
			"(openssl x509 -noout -serial -in FILE); its daemon then joins again with a new token. Without arguments,\n" +
			"list what is revoked.",
		Example: "  berth deny node n7\n  berth deny serial 5f3a09c41b\n  berth deny",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return runDenied(cmd.Context(), e, c, &apiv1.SetDeniedRequest{Look: true})
			}
			req, err := deniedOf(args)
			if err != nil {
				return err
			}
			return runDenied(cmd.Context(), e, c, req)
		},
	}
}

// NewAllowCmd returns the command allow.
func NewAllowCmd(e *console.Env, c *client.Client) *cobra.Command {
	return &cobra.Command{
		Use: "allow node|gate|coordinator NAME | serial NUMBER", Short: "Let a daemon with revoked certificates connect again",
		Long: "Let a daemon with revoked certificates connect again, or a node that was removed: with its existing\n" +
			"certificate while that is valid, or with a new join token.",
		Example: "  berth allow node n7\n  berth allow serial 5f3a09c41b",
		Args:    cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := deniedOf(args)
			if err != nil {
				return err
			}
			req.Allow = true
			return runDenied(cmd.Context(), e, c, req)
		},
	}
}

func deniedOf(args []string) (*apiv1.SetDeniedRequest, error) {
	if len(args) != 2 {
		return nil, console.Usagef("want a kind and a name, for example: node n7")
	}
	role, id := args[0], args[1]
	switch role {
	case "node":
		role = "agent" // as in its certificate
	case "gate", "coordinator":
	case "serial":
		id = strings.TrimLeft(strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(id, "serial="), ":", "")), "0")
	default:
		return nil, console.Usagef("%q: want node, gate, coordinator or serial", role)
	}
	return &apiv1.SetDeniedRequest{Role: role, Id: id}, nil
}

func runDenied(ctx context.Context, e *console.Env, c *client.Client, req *apiv1.SetDeniedRequest) error {
	kind := client.Changes
	if req.Look {
		kind = client.Reads
	}
	resp, err := client.SetDenied.Ask(ctx, c, kind, req)
	switch {
	case err != nil && req.Look:
		return err
	case err != nil:
		return console.UnknownChange(err, "Check with: berth deny")
	}
	for _, d := range resp.GetDenied() {
		role := d.GetRole()
		if role == "agent" {
			role = "node"
		}
		e.Printf("denied: %s %s, %s\n", console.Escape(role), console.Escape(d.GetId()), console.When(e, d.GetAt()))
	}
	if len(resp.GetDenied()) == 0 {
		e.Printf("Nothing is denied.\n")
	}
	return nil
}
