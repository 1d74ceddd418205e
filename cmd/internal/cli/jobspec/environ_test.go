package jobspec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/cluster"
)

func TestJobEnv(t *testing.T) {
	t.Parallel()
	environ := []string{"PATH=/bin", "HOME=/root", "SHLVL=2", "LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/opt/lib", "NVIDIA_VISIBLE_DEVICES=all",
		"CUDA_VISIBLE_DEVICES=3", "BERTH_JOB_ID=7", "SSH_AUTH_SOCK=/x", "BAD", "EMPTY=", "BIG=" + strings.Repeat("x", cluster.MaxEnvLine)}
	for name, tc := range map[string]struct {
		export   string
		file     []string
		want     []string
		warnings int
	}{
		"all by default": {"", nil, []string{"PATH=/bin", "HOME=/root", "LD_LIBRARY_PATH=/opt/lib", "EMPTY="}, 2},
		"none":           {"NONE", nil, nil, 0},
		"list":           {"HOME,MISSING,X=1", nil, []string{"HOME=/root", "X=1"}, 0},
		"all and more":   {"ALL,PATH=/mine", nil, []string{"PATH=/mine", "HOME=/root", "LD_LIBRARY_PATH=/opt/lib", "EMPTY="}, 2},
		"file wins":      {"PATH", []string{"PATH=/file", "A=b"}, []string{"PATH=/file", "A=b"}, 0},
		"loader by name": {"LD_PRELOAD", nil, nil, 1},
		"loader in file": {"NONE", []string{"LD_PRELOAD=/x"}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, warnings, err := jobEnv(environ, tc.export, tc.file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if len(warnings) != tc.warnings {
				t.Errorf("warnings: %q, want %d", warnings, tc.warnings)
			}
		})
	}
	var many []string
	for i := range cluster.MaxEnv + 1 {
		many = append(many, fmt.Sprintf("V%d=1", i))
	}
	if _, _, err := jobEnv(many, "", nil); err == nil || !strings.Contains(err.Error(), "--export PATH,HOME") {
		t.Errorf("too many variables: %v", err)
	}
}

func TestSecretsWarning(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env, command []string
		want         string
	}{
		"none":     {[]string{"PATH=/bin", "TOKENIZERS_PARALLELISM=false", "EMPTY_SECRET="}, []string{"python", "--epochs=3"}, ""},
		"variable": {[]string{"HF_TOKEN=x", "AWS_SECRET_ACCESS_KEY=y"}, nil, "HF_TOKEN, AWS_SECRET_ACCESS_KEY"},
		"argument": {nil, []string{"x", "--db-password=hunter2"}, "--db-password"},
	} {
		got := SecretsWarning(tc.env, tc.command)
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
