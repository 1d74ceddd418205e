package daemon

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/login"
	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// TestNothingIsClearedBesideAnAgent that runs: it would start jobs again.
func TestNothingIsClearedBesideAnAgent(t *testing.T) {
	t.Parallel()
	cfg := config.DefaultAgent()
	cfg.Data.Dir = t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(cfg.Data.Dir, login.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := clearNode(t.Context(), &cfg, io.Discard); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("got %v, want a refusal", err)
	}
}
