package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestElectedWakes: who waits to try again is woken when another coordinator says that
// it leads, and by nothing else.
func TestElectedWakes(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string
		then   []string // after half a second
		woken  bool
	}{
		{"nobody leads", nil, nil, false},
		{"the one that is gone says so still", []string{"a"}, []string{"a"}, false},
		{"it is forgotten", []string{"a"}, nil, false},
		{"another one leads", []string{"a"}, []string{"a", "b"}, true},
		{"one leads", nil, []string{"b"}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			k := &link{leaders: func() []string {
				if time.Since(began) < 500*time.Millisecond {
					return c.before
				}
				return c.then
			}}
			got, took := k.elected(t.Context(), 3*time.Second), time.Since(began)
			if got != c.woken || c.woken && took > 500*time.Millisecond+firstReconnect+electedSpread || !c.woken && took != 3*time.Second {
				t.Errorf("%s: woken %t after %s", c.name, got, took)
			}
		})
	}
}
