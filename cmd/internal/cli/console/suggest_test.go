package console_test

import (
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// TestDidYouMean: what is proposed for what people mistype, and that nothing is where it
// would be a guess.
func TestDidYouMean(t *testing.T) {
	t.Parallel()
	verbs := []string{"cancel", "node", "queue", "status", "submit", "gpu", "sbatch", "squeue"}
	for _, c := range []struct {
		typed, want string
		known       []string
	}{
		{"qeueu", "queue", verbs}, {"stauts", "status", verbs}, {"sbtach", "sbatch", verbs}, {"canel", "cancel", verbs}, {"qstat", "queue", verbs}, {"que", "queue", verbs},
		{"stat", "state", []string{"start", "state"}}, {"gpu", "gpus", []string{"gpu-mem", "gpus", "gpu-type"}}, {"create", "add", []string{"add", "list", "remove", "set"}},
		{"RUNING", "RUNNING", []string{"RUNNING", "PENDING"}}, {"jsn", "json", []string{"table", "json", "yaml"}},
		{"fp12", "", []string{"fp16", "fp32"}}, {"frobnicate", "", verbs}, {"", "", verbs},
	} {
		want := ""
		if c.want != "" {
			want = `; did you mean "` + c.want + `"?`
		}
		if have := console.DidYouMean(c.typed, c.known); have != want {
			t.Errorf("%q of %q: %q, want %q", c.typed, c.known, have, want)
		}
	}
}
