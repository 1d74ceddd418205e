package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// TestProxyOf: the proxy's secret is read, and system accounts and strangers are not let in
// by it.
func TestProxyOf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		os.Remove(path)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := proxyOf(&config.WebProxy{}, 1000); p != nil || err != nil {
		t.Errorf("no proxy: %v, %v", p, err)
	}
	cfg := &config.WebProxy{Header: "X-Remote-User", From: []string{"10.0.0.5", "10.1.0.0/16"}, Secret: path}
	for _, c := range []struct {
		text  string
		mode  os.FileMode
		words string
	}{{"short\n", 0o600, "want 16 or more"}, {"long enough for a secret\n", 0o644, "secret"}} {
		write(c.text, c.mode)
		if _, err := proxyOf(cfg, 1000); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q, %o: %v, want %q", c.text, c.mode, err, c.words)
		}
	}
	write("long enough for a secret\n", 0o600)
	p, err := proxyOf(cfg, 1000)
	if err != nil || p.Secret != "long enough for a secret" || len(p.From) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, words := range map[string]string{"root": "system account", "no such user at all": "not known on this machine"} {
		if u, err := p.User(name); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %+v, %v, want %q", name, u, err, words)
		}
	}
	if p, err = proxyOf(cfg, 0); err != nil {
		t.Fatal(err)
	}
	if u, err := p.User("root"); err == nil {
		t.Errorf("root was let in as %+v", u)
	}
}
