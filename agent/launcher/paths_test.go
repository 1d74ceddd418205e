package launcher

import (
	"testing"

	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
)

func TestExpandPath(t *testing.T) {
	t.Parallel()
	as := &nodev1.Assignment{Job: 42, Attempt: 1, Name: "train", User: "alice"}
	for pattern, want := range map[string]string{
		"berth-%j.out":   "berth-42.out",
		"%x-%j-%u-%N":    "train-42-alice-n1",
		"%6j.%3a":        "000042.4294967294",
		"100%%":          "100%",
		"a%zb%":          "a%zb%",
		`logs\%j`:        "logs%j",
		"%99j":           "0000000042",
		"plain":          "plain",
		"%J/%A/%t-%n-%s": "42/42/0-0-0",
	} {
		if got := expandPath(pattern, as, "n1", ""); got != want {
			t.Errorf("%q becomes %q, want %q", pattern, got, want)
		}
	}
}
