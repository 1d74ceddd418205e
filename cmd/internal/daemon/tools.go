package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/berth-scheduler/berth/agent/launcher"
	"github.com/berth-scheduler/berth/cmd/internal/gate"
	"github.com/berth-scheduler/berth/cmd/internal/programs"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	"github.com/berth-scheduler/berth/coordinator/api/authorize"
)

// gateName is the socket, next to the batch scripts, by which jobs reach
// the cluster. Its directory holds nothing else, and may be mounted.
const gateName = "cluster/berth.sock"

// tools are Slurm's commands for the jobs of a node: links to the users'
// program. A node without that program has none.
func tools(scripts string, imagesToo bool, log *slog.Logger) launcher.Tools {
	if scripts == "" {
		return launcher.Tools{}
	}
	exe, err := programs.Path(programs.Users)
	if err != nil {
		log.Warn("jobs find none of Berth's and Slurm's commands on this node", "err", err)
		return launcher.Tools{}
	}
	return launcher.Tools{Exe: exe, Names: append(slurm.Commands(), programs.Users), Socket: filepath.Join(scripts, gateName), ImagesToo: imagesToo}
}

// serveGate forwards the requests of jobs on this node to the coordinators,
// until ctx ends.
func serveGate(ctx context.Context, coordinators func() []string, dial func(string) (*grpc.ClientConn, error), socket string, hasJob func(uid uint32) bool, reg prometheus.Registerer, log *slog.Logger) error {
	if socket == "" {
		return nil
	}
	dir := filepath.Dir(socket)
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { // whatever the umask
		return fmt.Errorf("socket for jobs: %w", err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("socket for jobs: %w", err)
	}
	ln, err := net.Listen("unix", socket)
	if err == nil {
		err = os.Chmod(socket, 0o666) // #nosec G302 -- who connects is told by the kernel
	}
	if err != nil {
		return fmt.Errorf("socket for jobs: %w", err)
	}
	g := gate.New(coordinators, dial, func(info credentials.AuthInfo) (uid, gid uint32, ok bool) {
		peer, ok := info.(authorize.UnixPeer)
		return uint32(peer.UID), peer.GID, ok
	}, hasJob, reg, log)
	return g.Serve(ctx, ln, authorize.UnixCredentials())
}
