package console

import (
	"bytes"
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster/draws"
	"github.com/berth-scheduler/berth/cmd/internal/escape"
)

var _ = draws.Fixed()

// TestEncodingsReadBack holds for any text: JSON and YAML give it back whole,
// and nothing that steers a terminal is printed but line ends.
func TestEncodingsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.String()).Draw(t, "in")
		var out bytes.Buffer
		e := &Env{Stdout: &out}
		e.Start()
		var got []string
		if err := printJSON(e, in); err != nil {
			t.Fatal(err)
		}
		e.Flush()
		clean(t, out.String())
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		same(t, in, got)
		out.Reset()
		if err := printYAML(e, in); err != nil {
			t.Fatal(err)
		}
		e.Flush()
		clean(t, out.String())
		got = nil
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		same(t, in, got)
	})
}

func clean(t *rapid.T, s string) {
	for _, r := range s {
		if r != '\n' && !escape.Shown(r) {
			t.Fatalf("%U in %q", r, s)
		}
	}
}

func same(t *rapid.T, want, got []string) {
	if len(want) != len(got) {
		t.Fatalf("want %q, got %q", want, got)
	}
	for i := range want {
		if want[i] != got[i] {
			t.Fatalf("want %q, got %q", want[i], got[i])
		}
	}
}
