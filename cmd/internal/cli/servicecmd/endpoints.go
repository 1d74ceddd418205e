package servicecmd

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-scheduler/berth/cluster/service"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// The forms of a list of endpoints.
const (
	formatLines      console.Format = "lines"
	formatPrometheus console.Format = "prometheus"
	formatHAProxy    console.Format = "haproxy"
	formatNginx      console.Format = "nginx"
)

func newEndpointsCmd(e *console.Env, c *client.Client) *cobra.Command {
	var output, user string
	cmd := &cobra.Command{
		Use: "endpoints NAME", Short: "List the endpoints of a service's replicas",
		Long: "List the endpoints of ready replicas: one per line, or as configuration for HAProxy (servers of a\n" +
			"backend), nginx (an upstream) or Prometheus (file_sd_configs). Every coordinator's metrics port also\n" +
			"serves them for Prometheus, at /services. Another user may have a service of the same name: give\n" +
			"--user to be sure where requests go.",
		Example: "  berth service endpoints chat\n  berth service endpoints chat --user ann -o haproxy\n  berth service endpoints chat -o nginx > /etc/nginx/upstreams/chat.conf",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := of(cmd.Context(), e, c, user, args[0])
			if err != nil {
				return err
			}
			text, err := s.endpoints(console.Format(output))
			if err == nil {
				e.Printf("%s", text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "the service of this `USER`; by default yours")
	console.AddFormat(cmd, &output, formatLines, formatHAProxy, formatNginx, formatPrometheus, console.FormatJSON)
	return cmd
}

// endpoint is one replica that accepts requests.
type endpoint struct {
	Address string `json:"address"`
	Replica string `json:"replica"`
	Node    string `json:"node"`
}

func (s *shown) endpoints(f console.Format) (string, error) {
	ready := []endpoint{}
	for _, r := range s.Replicas {
		if r.State == service.Ready.String() {
			ready = append(ready, endpoint{net.JoinHostPort(r.Address, strconv.FormatUint(uint64(r.Port), 10)), fmt.Sprintf("%d-%d", r.Revision, r.Replica), r.Node})
		}
	}
	var b strings.Builder
	switch f {
	case console.FormatJSON:
		text, err := json.MarshalIndent(ready, "", "  ")
		return string(text) + "\n", err
	case formatPrometheus:
		type group struct {
			Targets []string          `json:"targets"`
			Labels  map[string]string `json:"labels"`
		}
		groups := []group{}
		for _, r := range ready {
			groups = append(groups, group{[]string{r.Address}, map[string]string{"service": s.Name, "user": s.User, "port": s.PortName, "node": r.Node, "replica": r.Replica}})
		}
		text, err := json.MarshalIndent(groups, "", "  ")
		return string(text) + "\n", err
	case formatNginx:
		fmt.Fprintf(&b, "upstream %s {\n", s.Name)
		for _, r := range ready {
			fmt.Fprintf(&b, "    server %s;\n", r.Address)
		}
		if len(ready) == 0 { // an upstream needs at least one
			b.WriteString("    server 127.0.0.1:9 down;\n")
		}
		b.WriteString("}\n")
	default:
		for _, r := range ready {
			if f == formatHAProxy {
				fmt.Fprintf(&b, "    server %s-%s %s check\n", s.Name, r.Replica, r.Address)
			} else {
				fmt.Fprintf(&b, "%s\n", r.Address)
			}
		}
	}
	return b.String(), nil
}
