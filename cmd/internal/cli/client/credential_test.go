package client_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
)

// TestJobsShowTheirCredential: what $BERTH_CREDENTIAL names goes with each request,
// if it is a credential; no other file's content leaves the process.
func TestJobsShowTheirCredential(t *testing.T) {
	t.Parallel()
	credential := "j7-a2." + strings.Repeat("ab", 32)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a credential":           {credential + "\n", []string{credential}},
		"an empty file":          {"", nil},
		"another file":           {"root:x:0:0\n", nil},
		"a credential and more":  {credential + "\nroot:x:0:0\n", nil},
		"a part of a credential": {credential[:40], nil},
		"a large file":           {strings.Repeat(credential+"\n", 10_000), nil},
		"no file":                {"-", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := clitest.NewWorld(t), clitest.NewFake()
			var got []string
			f.Hook = func(ctx context.Context, _ string) error {
				got = metadata.ValueFromIncomingContext(ctx, cluster.CredentialKey)
				return nil
			}
			w.Serve("/a", f)
			path := filepath.Join(t.TempDir(), "credential")
			if c.text != "-" {
				if err := os.WriteFile(path, []byte(c.text), 0o400); err != nil {
					t.Fatal(err)
				}
			}
			w.Vars["BERTH_CREDENTIAL"] = path
			if code := w.Run("submit", "--", "true"); code != 0 {
				t.Fatalf("exit code %d: %s", code, w.Errs.String())
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
