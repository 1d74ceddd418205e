package sim

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/gpu"
)

func TestModelsAreConsistent(t *testing.T) {
	t.Parallel()
	seen := map[string]struct{}{}
	for _, m := range models() {
		if got := gpu.NormalizeType(m.name); got != m.typ {
			t.Errorf("driver's name %q is type %q, the table says %q", m.name, got, m.typ)
		}
		if _, dup := seen[m.typ]; dup {
			t.Errorf("%s is listed twice", m.typ)
		}
		seen[m.typ] = struct{}{}
		if m.contextMiB%2 != 0 || m.contextMiB < 200 || m.contextMiB > 600 {
			t.Errorf("%s: context of %d MiB", m.typ, m.contextMiB)
		}
		if m.speedMilli < 1 || m.idleW >= m.limitW || m.reservedMiB >= m.memMiB/10 {
			t.Errorf("%s: %+v", m.typ, m)
		}
	}
}

func TestParseSpecs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want []Spec
		msg  string
	}{
		{in: "T4", want: []Spec{{Type: "T4", Count: 1}}},
		{in: "2xA100-SXM4-80GB, 1xt4", want: []Spec{{Type: "A100-SXM4-80GB", Count: 2}, {Type: "t4", Count: 1}}},
		{in: "4xRTX-3090:8192", want: []Spec{{Type: "RTX-3090", Count: 4, MemMiB: 8192}}},
		{in: "RTX-3090", want: []Spec{{Type: "RTX-3090", Count: 1}}},
		{in: "Voodoo2", msg: `unknown simulated GPU type "Voodoo2"; known types: A10, A100-PCIE-40GB`},
		{in: "", msg: "unknown simulated GPU type"},
		{in: "0xT4", msg: "count 0 is outside 1-16"},
		{in: "17xT4", msg: "count 17 is outside"},
		{in: "T4:abc", msg: `memory "abc"`},
		{in: "T4:100", msg: "memory 100 MiB is outside 1026-1048576"},
		{in: "T4:-1", msg: "memory -1 MiB"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			t.Parallel()
			got, err := ParseSpecs(tc.in)
			if tc.msg != "" {
				if err == nil || !strings.Contains(err.Error(), tc.msg) {
					t.Fatalf("got error %v, want one with %q", err, tc.msg)
				}
				return
			}
			if err != nil {
				t.Fatalf("parse: %v", err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func FuzzParseSpecs(f *testing.F) {
	f.Add("2xA100-SXM4-80GB,T4:2048")
	f.Add("x,:")
	f.Fuzz(func(t *testing.T, s string) {
		specs, err := ParseSpecs(s)
		if err != nil {
			return
		}
		var parts []string
		for _, sp := range specs {
			parts = append(parts, sp.String())
		}
		again, err := ParseSpecs(strings.Join(parts, ","))
		if err != nil {
			t.Fatalf("%q reads as %v, which does not read: %v", s, specs, err)
		}
		if d := cmp.Diff(specs, again); d != "" {
			t.Fatalf("%q changed (-first +second):\n%s", s, d)
		}
	})
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	good := Config{Node: "n1", Socket: "/run/berth/sim/cards", Specs: []Spec{{Type: "T4", Count: 16}}}
	if err := good.Validate(); err != nil {
		t.Fatalf("good config refused: %v", err)
	}
	bad := Config{Socket: "/" + strings.Repeat("x", 200), Specs: []Spec{{Type: "T4", Count: 10}, {Type: "L4", Count: 10}, {Type: "nope", Count: 1}}}
	err := bad.Validate()
	if err == nil {
		t.Fatal("bad config accepted")
	}
	for _, msg := range []string{"no node name", "at most 107 bytes", `type "nope"`, "21 cards, outside 1-16"} {
		if !strings.Contains(err.Error(), msg) {
			t.Errorf("error does not say %q:\n%v", msg, err)
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^GPU-51700000-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	seen := map[string]struct{}{}
	for _, node := range []string{"n1", "n11"} {
		for i := range MaxCards {
			u := UUID(node, i)
			if !form.MatchString(u) || u != UUID(node, i) {
				t.Errorf("UUID(%q, %d) = %q", node, i, u)
			}
			seen[u] = struct{}{}
		}
	}
	if len(seen) != 2*MaxCards {
		t.Errorf("%d different UUIDs of %d", len(seen), 2*MaxCards)
	}
	if got, want := UUID("n1", 0), "GPU-51700000-f8e0-9f80-be48-917ec5090b42"; got != want {
		t.Errorf("UUIDs changed: %s, was %s; running jobs would lose their cards", got, want)
	}
}
