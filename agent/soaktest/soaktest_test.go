package soaktest

import (
	"strings"
	"testing"
)

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		v     string
		want  int
		wrong bool
	}{
		{v: "", want: 3}, {v: "1", want: 200}, {v: "0.1", want: 20}, {v: "0.001", want: 3}, {v: "0.333", want: 67},
		{v: "0", wrong: true}, {v: "2", wrong: true}, {v: "NaN", wrong: true}, {v: "yes", wrong: true}, {v: "-1", wrong: true},
	} {
		t.Run(c.v, func(t *testing.T) {
			if c.wrong {
				if n, problem := times(c.v, 3, 200); !strings.Contains(problem, Env+"="+c.v) {
					t.Errorf("got %d, %q", n, problem)
				}
				return
			}
			t.Setenv(Env, c.v)
			if got := Times(t, 3, 200); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}
