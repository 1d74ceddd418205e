package sruncmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/agent/step"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// TestOpenMode: a step empties its files, or adds to them, as srun or the job was
// told; the option counts more than the variable.
func TestOpenMode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		env  string
		want string
	}{
		{nil, "", "new\n"}, {[]string{"--open-mode=append"}, "", "old\nnew\n"}, {[]string{"--open-mode=truncate"}, "", "new\n"}, {nil, "a", "old\nnew\n"},
		{nil, "t", "new\n"}, {[]string{"--open-mode=t"}, "a", "new\n"}, {[]string{"--open-mode=rotate"}, "", "!"}, {nil, "rotate", "!"},
	} {
		file := filepath.Join(t.TempDir(), "out")
		if err := os.WriteFile(file, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := parse(append(tc.args, "-o", file, "cmd"))
		if err != nil {
			t.Fatal(err)
		}
		set, err := settle(o, func(name string) string { return map[string]string{"SLURM_OPEN_MODE": tc.env}[name] })
		if tc.want == "!" {
			if err == nil || err.Error() != "Invalid --open-mode specification" {
				t.Errorf("%v with %q: %v", tc.args, tc.env, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &stepRun{o: o, l: &layout{places: []place{{node: "n1", tasks: 1}}}, j: &job{id: 7}}
		s.e = &console.Env{Getenv: func(string) string { return "" }}
		outs := newOutputs(o, 1, nil, nil, s.patterns(set))
		if err := outs.write(step.Stdout, 0, []byte("new\n")); err != nil {
			t.Fatal(err)
		}
		if err := outs.close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != tc.want {
			t.Errorf("%v with %q: %q, %v, want %q", tc.args, tc.env, got, err, tc.want)
		}
	}
}
