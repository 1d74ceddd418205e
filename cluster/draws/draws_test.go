package draws

import (
	"flag"
	"testing"
)

var _ = Fixed()

func TestFixed(t *testing.T) {
	want := map[string]string{"rapid.seed": Seed, "rapid.checks": map[bool]string{true: "100", false: "300"}[raceDetector], "rapid.nofailfile": "true"}
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range want {
		if got := flag.Lookup(name).Value.String(); got != value || !given[name] {
			t.Errorf("%s is %s, want %s", name, got, value)
		}
	}
}
