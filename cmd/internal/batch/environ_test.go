package batch

import (
	"fmt"
	"regexp"
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
			got, warnings, err := Environment(environ, tc.export, tc.file)
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
	if _, _, err := Environment(many, "", nil); err == nil || !strings.Contains(err.Error(), "--export PATH,HOME") {
		t.Errorf("too many variables: %v", err)
	}
}

// TestNames: lists of variables are what these patterns say.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		has     func(string) bool
		pattern string
	}{
		{sessionVars.has, `^(_|SHLVL|OLDPWD|PWD|SSH_.*|DBUS_SESSION_.*|DISPLAY|WINDOWID|XAUTHORITY|XDG_(SESSION|SEAT|VTNR|RUNTIME).*|TMUX.*|STY|BERTH_.*|SLURM_.*|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NVIDIA_DRIVER_CAPABILITIES|NVIDIA_REQUIRE_.*)$`},
		{loaderVars.has, `^(LD_PRELOAD|LD_AUDIT|LD_DEBUG.*|LD_PROFILE.*|GLIBC_TUNABLES|GCONV_PATH|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|REQUIRE_.*))$`},
		{secretVar, `(?i)(SECRET|PASSW(OR)?D|_TOKEN$|^TOKEN$|API_?KEY|PRIVATE_?KEY|CREDENTIAL)`},
	} {
		want := regexp.MustCompile(tc.pattern)
		for _, stem := range []string{
			"_", "SHLVL", "OLDPWD", "PWD", "SSH_", "SSH", "DBUS_SESSION_BUS", "DISPLAY", "WINDOWID", "XDG_SEAT", "XDG_SEAT_PATH", "XDG_DATA", "TMUX", "STY", "BERTH_", "BERTH",
			"SLURM_JOB", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_AUDIT", "LD_DEBUG", "LD_PROFILE_OUTPUT", "GLIBC_TUNABLES", "NVIDIA_REQUIRE_", "NVIDIA_REQUIRE", "NVIDIA_VISIBLE_DEVICES",
			"secret", "Password", "PASSWD", "PASSW", "TOKEN", "TOKENIZERS", "HF_TOKEN", "api_key", "APIKEY", "API-KEY", "PRIVATE_KEY", "credential", "",
		} {
			for _, name := range []string{stem, "X" + stem, stem + "X", stem + "_TOKEN"} {
				if got := tc.has(name); got != want.MatchString(name) {
					t.Errorf("%q: %t, and %s says otherwise", name, got, tc.pattern)
				}
			}
		}
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
