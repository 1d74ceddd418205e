package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/rules"
)

// partsAt are parts on nodes with these paths, the first the best.
func partsAt(j *cluster.Job, paths ...string) (out []rules.Part) {
	for i, p := range paths {
		n := &cluster.Node{ID: cluster.NodeID(fmt.Sprintf("n%02d", i)), Features: []string{"big", "rack=elsewhere", cluster.SwitchFeature + p}}
		out = append(out, rules.NewPart(j, n, rules.Part{Host: int32(i), Order: int64(i)}))
	}
	return out
}

func gang(n int) *cluster.Job {
	return &cluster.Job{ID: 1, Spec: &cluster.Spec{GPUs: 1, Nodes: n}}
}

func hostsOf(parts []rules.Part) (out []int32) {
	for i := range parts {
		out = append(out, parts[i].Host)
	}
	slices.Sort(out)
	return out
}

func TestNearParts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		paths string // of the nodes that have room, the best first
		n     int
		want  []int32
		words string
	}{
		{"nobody says where", "- - -", 2, []int32{0, 1}, ""},
		{"one switch has enough", "a b b a c", 2, []int32{0, 3}, ", all on switch a"},
		{"the one with the fewest", "a a a b b", 2, []int32{3, 4}, ", all on switch b"},
		{"none has enough: most of the largest", "a b c c c", 4, []int32{0, 2, 3, 4}, ", on 2 switches"},
		{"the lowest switch", "x:a x:b y:c y:d y:d", 2, []int32{3, 4}, ", all on switch d"},
		{"below one of the middle", "x:a y:c x:b y:d y:e", 3, []int32{1, 3, 4}, ", on 3 switches"},
		{"a leaf of the middle first", "y:c y:c x:a x:a x:a x:b y:d", 4, []int32{2, 3, 4, 5}, ", on 2 switches"},
		{"those that say nothing are elsewhere", "- a - a", 2, []int32{1, 3}, ", all on switch a"},
		{"all of them", "a b c", 3, []int32{0, 1, 2}, ", on 3 switches"},
		{"ab is not below a", "ab ab a a", 2, []int32{2, 3}, ", all on switch a"},
	} {
		paths := strings.Fields(strings.ReplaceAll(" "+c.paths, " -", " ."))
		for i := range paths {
			paths[i] = strings.TrimPrefix(paths[i], ".")
		}
		j := gang(c.n)
		parts := partsAt(j, paths...)
		if c.paths[0] == '-' && !strings.Contains(c.paths, "a") {
			for i := range parts { // no feature at all
				parts[i] = rules.NewPart(j, &cluster.Node{ID: "n"}, parts[i])
			}
		}
		got, ok := rules.NearParts(j, parts, 0)
		if !ok || !slices.Equal(hostsOf(got), c.want) || rules.SwitchWords(got) != c.words {
			t.Errorf("%s: nodes %v, %v, %q; want %v, %q", c.name, hostsOf(got), ok, rules.SwitchWords(got), c.want, c.words)
		}
	}
	if rack := (&cluster.Node{Features: []string{"rack=r7", "big"}}).SwitchPath(); rack != "r7" {
		t.Errorf("a rack is %q", rack)
	}
	// What a job asks for by name, and nodes that held it up, come before nearness.
	named := gang(2)
	hosts, err := cluster.ParseHostList("n04")
	if err != nil {
		t.Fatal(err)
	}
	named.Spec.Where = &cluster.Where{Nodes: hosts}
	if got, ok := rules.NearParts(named, partsAt(named, "b", "a", "a", "a", "b"), 0); !ok || !slices.Equal(hostsOf(got), []int32{0, 4}) {
		t.Errorf("by name: %v", hostsOf(got))
	}
	if _, ok := rules.NearParts(gang(3), partsAt(gang(3), "a", "a"), 0); ok {
		t.Error("two nodes are enough for three")
	}
}

// TestNearPartsIsNearest: no set of as many nodes lies below a lower switch, and of those
// below one as low none is below one with fewer nodes.
func TestNearPartsIsNearest(t *testing.T) {
	t.Parallel()
	below := func(path string, d []string) bool { // component by component
		have := strings.Split(path, ":")
		return len(have) >= len(d) && slices.Equal(have[:len(d)], d)
	}
	common := func(paths []string) (d []string) {
		d = strings.Split(paths[0], ":")
		for _, p := range paths {
			for len(d) > 0 && !below(p, d) {
				d = d[:len(d)-1]
			}
		}
		return d
	}
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfN(rapid.SampledFrom([]string{"x", "x:a", "x:b", "y:a", "y:c", "y:c:p", "y:c:q", "z"}), 2, 9).Draw(t, "paths")
		n := rapid.IntRange(2, len(paths)).Draw(t, "nodes")
		got, ok := rules.NearParts(gang(n), partsAt(gang(n), paths...), 0)
		hosts := hostsOf(got)
		if !ok || len(hosts) != n || len(slices.Compact(slices.Clone(hosts))) != n {
			t.Fatalf("nodes %v, %v, want %d", hosts, ok, n)
		}
		count := func(d []string) (c int) {
			for _, p := range paths {
				if below(p, d) {
					c++
				}
			}
			return c
		}
		var chosen []string
		for _, h := range hosts {
			chosen = append(chosen, paths[h])
		}
		mine := common(chosen)
		for set := range 1 << len(paths) {
			var other []string
			for i, p := range paths {
				if set>>i&1 == 1 {
					other = append(other, p)
				}
			}
			if len(other) != n {
				continue
			}
			if d := common(other); len(d) > len(mine) || len(d) == len(mine) && len(d) > 0 && count(d) < count(mine) {
				t.Fatalf("%v of %v lie below %v, and %v below %v", chosen, paths, mine, other, d)
			}
		}
	})
}

// fewOf is a gang of n that has waited for a minute for at most so many switches, of the
// given time.
func fewOf(n, most int, wait time.Duration) *cluster.Job {
	j := gang(n)
	j.Spec.Where = &cluster.Where{Switches: cluster.Switches{Most: most, Wait: wait}}
	return j
}

// TestFewSwitches: a gang that waits for few switches is given nodes on as many at most,
// and those that come first of all such; it is given none where there are no such, unless
// it only asks when it may start.
func TestFewSwitches(t *testing.T) {
	t.Parallel()
	now := cluster.Time(time.Minute.Microseconds())
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "x:b", "x:c", "y:d"}), 2, 9).Draw(t, "paths")
		n, most := rapid.IntRange(2, len(paths)).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "most")
		over := rapid.Bool().Draw(t, "over")
		j := fewOf(n, most, time.Hour)
		if over {
			j.Spec.Where.Switches.Wait = time.Minute
		}
		first := -1 // the least last node of all sets that would do
		for set := range 1 << len(paths) {
			on, last, count := map[string]bool{}, 0, 0
			for i, p := range paths {
				if set>>i&1 == 1 {
					on[p], last, count = true, i, count+1
				}
			}
			if count == n && len(on) <= most && (first < 0 || last < first) {
				first = last
			}
		}
		on := func(parts []rules.Part) int {
			seen := map[string]bool{}
			for i := range parts {
				seen[paths[parts[i].Host]] = true
			}
			return len(seen)
		}
		near, ok := rules.NearParts(j, partsAt(j, paths...), now)
		if ok != (over || first >= 0) || ok && (len(near) != n || !over && on(near) > most) {
			t.Fatalf("near: %v, %v of %v", hostsOf(near), ok, paths)
		}
		few, ok := rules.FewParts(j, partsAt(j, paths...), now)
		if ok != (over || first >= 0) || ok && (len(few) != n || !over && (on(few) > most || rules.LastOrder(few) != int64(first))) {
			t.Fatalf("few: %v, %v of %v, want the last to be %d", hostsOf(few), ok, paths, first)
		}
		soon, ok := rules.SoonestParts(j, partsAt(j, paths...), now)
		want := int64(first)
		switch {
		case over:
			want = int64(n - 1)
		case first < 0:
			want = int64(j.Eligible.Add(time.Hour))
		}
		if !ok || len(soon) != n || rules.LastOrder(soon) != want {
			t.Fatalf("soonest: %v, %v of %v, the last at %d, want %d", hostsOf(soon), ok, paths, rules.LastOrder(soon), want)
		}
	})
	// When it may have any before enough come free on one, it has any then.
	j := fewOf(2, 1, time.Hour)
	parts := partsAt(j, "a", "b", "b")
	until := int64(j.Eligible.Add(time.Hour))
	parts[2].Order = until + 1
	if got, ok := rules.SoonestParts(j, parts, now); !ok || !slices.Equal(hostsOf(got), []int32{0, 1}) || rules.LastOrder(got) != until {
		t.Errorf("soonest: %v, the last at %d", hostsOf(got), rules.LastOrder(got))
	}
}
