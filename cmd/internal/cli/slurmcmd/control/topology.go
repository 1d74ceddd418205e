package control

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
)

// switchOf is a switch of the network as Slurm's topology/tree lists it: the
// nodes below it, the switches directly below it by path, and its level above
// its nodes.
type switchOf struct {
	path  string
	nodes []string
	below map[string]struct{}
	level int
}

// treeOf returns the tree of switches that the features of nodes describe, by path.
func treeOf(nodes []slurm.Node) map[string]*switchOf {
	tree := map[string]*switchOf{}
	for i := range nodes {
		path := (&cluster.Node{Features: nodes[i].Features}).SwitchPath()
		for child, level := "", 0; path != ""; level++ {
			s := tree[path]
			if s == nil {
				s = &switchOf{path: path, below: map[string]struct{}{}}
				tree[path] = s
			}
			s.nodes, s.level = append(s.nodes, nodes[i].Name), max(s.level, level)
			if child != "" {
				s.below[child] = struct{}{}
			}
			child = path
			path = path[:max(0, strings.LastIndexByte(path, ':'))]
		}
	}
	return tree
}

// nameIn returns a switch's name: the last part of its path if no other ends
// the same way.
func (s *switchOf) nameIn(tree map[string]*switchOf) string {
	last := s.path[strings.LastIndexByte(s.path, ':')+1:]
	for path := range tree {
		if path != s.path && path[strings.LastIndexByte(path, ':')+1:] == last {
			return s.path
		}
	}
	return last
}

// showSlurmTopology lists the switches, those closest to nodes first, or
// those with a given name or node below them.
func showSlurmTopology(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	_, nodes, err := terms.Cluster(ctx, e, c)
	if err != nil {
		return err
	}
	tree := treeOf(nodes)
	if len(tree) == 0 {
		return errors.New("no topology information available: no node names a switch")
	}
	found := false
	all := slices.SortedFunc(maps.Values(tree), func(a, b *switchOf) int { return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.path, b.path)) })
	for _, s := range all {
		name := s.nameIn(tree)
		if len(args) > 0 && args[0] != name && args[0] != s.path && !slices.Contains(s.nodes, args[0]) {
			continue
		}
		found = true
		e.Printf("SwitchName=%s Level=%d LinkSpeed=1 Nodes=%s", console.Escape(name), s.level, hostnames.FoldSet(s.nodes))
		if len(s.below) > 0 {
			var below []string
			for path := range s.below {
				below = append(below, tree[path].nameIn(tree))
			}
			e.Printf(" Switches=%s", console.Escape(hostnames.FoldSet(below)))
		}
		e.Printf("\n")
	}
	if !found {
		return option.Bare("Topology information contains no switch or node named " + args[0])
	}
	return nil
}
