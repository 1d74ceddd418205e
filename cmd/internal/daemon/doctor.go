package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/config"
	"github.com/berth-scheduler/berth/cmd/internal/doctor"
	"github.com/berth-scheduler/berth/cmd/internal/tlsconf"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
	"github.com/berth-scheduler/berth/proto/berth/api/v1/apirpc"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/berth/node/v1/noderpc"
)

type doctorOptions struct {
	agent, coordinator string
	roles              []string
	output             string
}

func newDoctorCommand() *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this machine for problems and say how to fix them",
		Long: "Check this machine and print one line per finding: ok, warn or fail, and how to fix it. Nothing is\n" +
			"changed. What is checked depends on the machine: a node if it has an agent's configuration, a\n" +
			"coordinator if it has a coordinator's, a login node otherwise. Run it as root on nodes and\n" +
			"coordinators, or it cannot read their keys.\n" +
			"\n" +
			"Exits with 0 if nothing failed, even with warnings, and with 1 otherwise.",
		Example: "  berth doctor\n  berth doctor -o json\n  berth doctor --role agent --agent-config ./agent.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "table" && o.output != "json" {
				return console.Usagef("-o %.40q: want table or json", o.output)
			}
			s, err := o.subject()
			if err != nil {
				return err
			}
			lines := doctor.Examine(cmd.Context(), doctor.System(nodeClock(s), userClock), s)
			if err := printFindings(cmd.OutOrStdout(), o.output, s.Roles, lines); err != nil {
				return err
			}
			if doctor.Failed(lines) {
				return &console.ExitError{Code: console.ExitFailed}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent-config", "/etc/berth/agent.yaml", "configuration of this machine's agent")
	f.StringVar(&o.coordinator, "coordinator-config", "/etc/berth/coordinator.yaml", "configuration of this machine's coordinator")
	f.StringArrayVar(&o.roles, "role", nil, "check as an agent, coordinator or login node, whatever files exist; repeatable")
	f.StringVarP(&o.output, "output", "o", "table", "output `FORMAT`: table or json")
	return cmd
}

// subject determines what this machine is.
func (o *doctorOptions) subject() (*doctor.Subject, error) {
	s := &doctor.Subject{}
	for _, r := range o.roles {
		role := doctor.Role(r)
		if !slices.Contains([]doctor.Role{doctor.Login, doctor.Coordinator, doctor.Agent}, role) {
			return nil, console.Usagef("--role %.40q: want agent, coordinator or login", r)
		}
		s.Roles = append(s.Roles, role)
	}
	there := func(path string, role doctor.Role) bool {
		if len(o.roles) > 0 {
			return slices.Contains(s.Roles, role)
		}
		_, err := os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) {
			s.Roles = append(s.Roles, role)
			return true
		}
		return false
	}
	if there(o.coordinator, doctor.Coordinator) {
		l, err := config.LoadCoordinator(config.Sources{Path: o.coordinator, Env: os.Environ()})
		if s.CoordinatorErr = err; err == nil {
			s.Coordinator = l.Config
		}
	}
	if there(o.agent, doctor.Agent) {
		l, err := config.LoadAgent(config.Sources{Path: o.agent, Env: os.Environ()})
		if s.AgentErr = err; err == nil {
			s.Agent = l.Config
		}
	}
	if len(s.Roles) == 0 {
		s.Roles = []doctor.Role{doctor.Login}
	}
	sockets := cmp.Or(os.Getenv("BERTH_SOCKET"), console.DefaultSocket)
	s.Sockets = strings.Split(sockets, ",")
	return s, nil
}

// nodeClock asks coordinators, using the certificate of the machine's daemon.
func nodeClock(s *doctor.Subject) func(context.Context, string) (doctor.Clock, error) {
	return func(ctx context.Context, addr string) (doctor.Clock, error) {
		var files tlsconf.Files
		switch {
		case s.Agent != nil:
			files = tlsconf.Files{CA: s.Agent.TLS.CA, Cert: s.Agent.TLS.Cert, Key: s.Agent.TLS.Key}
		case s.Coordinator != nil:
			files = tlsconf.Files{CA: s.Coordinator.TLS.CA, Cert: s.Coordinator.TLS.Cert, Key: s.Coordinator.TLS.Key}
		default:
			return doctor.Clock{}, errors.New("no certificate without a valid configuration")
		}
		src, err := tlsconf.OpenSource(files, slog.New(slog.DiscardHandler))
		if err != nil {
			return doctor.Clock{}, err
		}
		conn, err := tlsconf.Dialer(src, tlsconf.RoleCoordinator)(addr)
		if err != nil {
			return doctor.Clock{}, err
		}
		defer conn.Close()
		return compare(func() (*timestamppb.Timestamp, error) {
			resp, err := noderpc.NewNodeServiceClient(conn).GetClock(ctx, &nodev1.GetClockRequest{})
			return resp.GetNow(), err
		})
	}
}

// userClock asks through the socket for users.
func userClock(ctx context.Context, path string) (doctor.Clock, error) {
	conn, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return doctor.Clock{}, err
	}
	defer conn.Close()
	return compare(func() (*timestamppb.Timestamp, error) {
		resp, err := apirpc.NewClusterServiceClient(conn).GetStatus(ctx, &apiv1.GetStatusRequest{})
		return resp.GetNow(), err
	})
}

// compare asks for the time several times and keeps the quickest answer:
// the clock read in the middle of it is off by at most half the round trip.
func compare(ask func() (*timestamppb.Timestamp, error)) (doctor.Clock, error) {
	best := doctor.Clock{Bound: time.Hour}
	for range 5 {
		began := time.Now()
		now, err := ask()
		trip := time.Since(began)
		if err != nil {
			return doctor.Clock{}, errors.New(status.Convert(err).Message())
		}
		if now == nil {
			return doctor.Clock{}, errors.New("an older version that does not say")
		}
		if trip/2 < best.Bound {
			best = doctor.Clock{Ahead: now.AsTime().Sub(began.Add(trip / 2)), Bound: trip / 2}
		}
	}
	return best, nil
}

func printFindings(w io.Writer, format string, roles []doctor.Role, lines []doctor.Line) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"roles": roles, "lines": lines})
	}
	width, warns, fails := 0, 0, 0
	for _, l := range lines {
		width = max(width, len(l.Check))
	}
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", l.Status, width, l.Check, l.Text)
		if l.Status != doctor.OK && l.Fix != "" {
			fmt.Fprintf(&b, "      %-*s  fix: %s\n", width, "", l.Fix)
		}
		if l.Status == doctor.Fail && l.Key != "" {
			fmt.Fprintf(&b, "      %-*s  the agent refuses to run; to accept it: unsafe: [%s] in agent.yaml\n", width, "", l.Key)
		}
		switch l.Status {
		case doctor.Warn:
			warns++
		case doctor.Fail:
			fails++
		}
	}
	fmt.Fprintf(&b, "%d findings: %d ok, %d to look at, %d to fix\n", len(lines), len(lines)-warns-fails, warns, fails)
	_, err := io.WriteString(w, b.String())
	return err
}

// refuseUnsafe keeps the agent from starting with known unsafe settings, and
// names the key under which its configuration can accept each.
func refuseUnsafe(ctx context.Context, cfg *config.Agent) error {
	lines := doctor.Refusals(ctx, doctor.System(nil, nil), cfg)
	if len(lines) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("this node is not safe to run jobs on:")
	for _, l := range lines {
		fmt.Fprintf(&b, "\n%s: %s\n  %s; or accept it in agent.yaml with unsafe: [%s]", l.Check, l.Text, l.Fix, l.Key)
	}
	return &console.ExitError{Code: exitConfig, Err: errors.New(b.String())}
}
