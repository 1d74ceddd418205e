package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// NearParts is BestParts for a job that starts now: among equally good nodes, those
// nearest to each other in the network. They are all below the lowest switch with
// enough that have room, of several such the one with the fewest, and on as few
// switches below it as possible: the rule of Slurm's topology/tree. A job that asks
// for no number of switches does not wait for nearer ones, and nodes that it names,
// or that delayed it, are taken as they come.
func NearParts(j *cluster.Job, parts []Part, now cluster.Time) (best []Part, ok bool) {
	best, ok = nearest(j, parts)
	if most, _ := j.FewSwitches(now); ok && Scattered(best, most) {
		best, ok = onSwitches(j, parts, most)
	}
	return best, ok
}

// SoonestParts is BestParts for a waiting job, with parts ordered by when they have
// room: the first time at which enough of them do on as few switches as the job
// asks for, or on any once it no longer waits for those.
func SoonestParts(j *cluster.Job, parts []Part, now cluster.Time) (best []Part, ok bool) {
	best, ok = BestParts(j, parts)
	most, until := j.FewSwitches(now)
	if !ok || !Scattered(best, most) {
		return best, ok
	}
	best = slices.Clone(best)
	for i := range best {
		best[i].Order = max(best[i].Order, int64(until))
	}
	if near, ok := onSwitches(j, parts, most); ok && LastOrder(near) <= LastOrder(best) {
		return near, true
	}
	return best, true
}

// FewParts is BestParts on as few switches as the job asks for while it waits for
// that.
func FewParts(j *cluster.Job, parts []Part, now cluster.Time) (best []Part, ok bool) {
	best, ok = BestParts(j, parts)
	if most, _ := j.FewSwitches(now); ok && Scattered(best, most) {
		return onSwitches(j, parts, most)
	}
	return best, ok
}

// Scattered reports whether the parts are on more than most switches, 0 being any
// number; nodes without a location count as one switch.
func Scattered(parts []Part, most int) bool {
	if most == 0 {
		return false
	}
	on := map[string]struct{}{}
	for i := range parts {
		on[parts[i].path] = struct{}{}
	}
	return len(on) > most
}

// onSwitches is BestParts on at most so many switches: among choices with enough
// parts, the one whose last part comes first in order. Nodes that the job names are
// all of its nodes.
func onSwitches(j *cluster.Job, parts []Part, most int) (best []Part, ok bool) {
	bestFirst(parts)
	n := j.Spec.NodeCount()
	// on returns the switches with most of the first parts, and how many parts
	// those have.
	on := func(first int) (names []string, all int) {
		count := map[string]int{}
		for i := range parts[:first] {
			count[parts[i].path]++
		}
		names = slices.SortedFunc(maps.Keys(count), func(a, b string) int {
			return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
		})
		names = names[:min(most, len(names))]
		for _, name := range names {
			all += count[name]
		}
		return names, all
	}
	first := sort.Search(len(parts), func(i int) bool {
		_, all := on(i + 1)
		return all >= n
	}) + 1
	if first > len(parts) {
		return nil, false
	}
	names, _ := on(first)
	in := slices.DeleteFunc(slices.Clone(parts[:first]), func(p Part) bool { return !slices.Contains(names, p.path) })
	return BestParts(j, in)
}

// nearest is NearParts for a job that takes any number of switches.
func nearest(j *cluster.Job, parts []Part) (best []Part, ok bool) {
	best, ok = BestParts(j, parts)
	if !ok || j.Spec.Where.Named() || best[len(best)-1].Late {
		return best, ok
	}
	n := len(best)
	good := slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.Late })
	paths := make([]string, len(good))
	for i := range good {
		paths[i] = good[i].path
	}
	in := Below(paths, n)
	if len(in) == 0 {
		return best, true
	}
	return gather(slices.DeleteFunc(good, func(p Part) bool { return !IsBelow(p.path, in[0]) }), in[0], n), true
}

// Below lists the switches below which at least so many of the places are, by their
// paths (cluster.Node.SwitchPath): the lowest first, and of those equally low the
// one with the fewest. The whole network is "". It is empty if no place has a
// location.
func Below(paths []string, least int) []string {
	count := map[string]int{}
	for _, p := range paths {
		count[""]++
		for i := range p {
			if p[i] == ':' {
				count[p[:i]]++
			}
		}
		if p != "" {
			count[p]++
		}
	}
	var out []string
	for d, n := range count {
		if n >= least {
			out = append(out, d)
		}
	}
	if len(count) <= 1 {
		return nil
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(level(b), level(a)), cmp.Compare(count[a], count[b]), cmp.Compare(a, b))
	})
	return out
}

// level returns how many switches there are from the network's root to one, itself
// included.
func level(path string) int {
	if path == "" {
		return 0
	}
	return 1 + strings.Count(path, ":")
}

// IsBelow reports whether a place is below a switch, or is it.
func IsBelow(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (of == "" || rest == "" || rest[0] == ':')
}

// gather takes n of the parts, all below a switch, from as few of the switches
// below it as possible: from the one with the fewest that has enough, otherwise
// from the one with the most.
func gather(parts []Part, in string, n int) []Part {
	if len(parts) <= n {
		return parts
	}
	var names []string
	by := map[string][]Part{}
	for _, p := range parts {
		name := in
		if rest := strings.TrimPrefix(p.path[len(in):], ":"); rest != "" {
			first, _, _ := strings.Cut(rest, ":")
			name = strings.TrimPrefix(in+":"+first, ":")
		}
		if by[name] == nil {
			names = append(names, name)
		}
		by[name] = append(by[name], p)
	}
	var out []Part
	for n > 0 {
		best := 0
		for i, name := range names {
			if have, most := len(by[name]), len(by[names[best]]); have >= n && (most < n || have < most) || most < n && have > most {
				best = i
			}
		}
		name := names[best]
		names = slices.Delete(names, best, best+1)
		take := by[name][:min(n, len(by[name]))]
		if name != in {
			take = gather(by[name], name, len(take))
		}
		out, n = append(out, take...), n-len(take)
	}
	return out
}

// SwitchWords says on how many switches the parts are, "" if no node has a
// location.
func SwitchWords(parts []Part) string {
	var on []string
	for i := range parts {
		if p := parts[i].path; !slices.Contains(on, p) {
			on = append(on, p)
		}
	}
	switch {
	case len(on) > 1:
		return fmt.Sprintf(", on %d switches", len(on))
	case len(on) == 0 || on[0] == "":
		return ""
	}
	return ", all on switch " + on[0][strings.LastIndexByte(on[0], ':')+1:]
}
