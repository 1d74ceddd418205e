package dev

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/agent/datasets"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/cluster"
)

// NodeSpec is what one node of a development cluster has: simulated GPUs, the
// machine's own ("nvml"), or none.
type NodeSpec struct {
	Provider string // sim, nvml or none
	GPUs     int
	Type     string
	Features []string
	Data     []string // as node.data
}

// maxNodes keeps a typing error from filling the machine with agents.
const maxNodes = 64

const specForms = `want NODESxGPUSxTYPE such as 4x2xA100-SXM4-80GB, "nvml" for this machine's GPUs, "cpu" or NODESxcpu for nodes without GPUs; separate several with commas`

// ParseNodes reads a list such as "4x2xA100-SXM4-80GB,1x4xT4@old+slow,cpu",
// where features follow an @; data=NAME=/path and data=/path/* among them are data sets.
func ParseNodes(s string) ([]NodeSpec, error) {
	var out []NodeSpec
	for part := range strings.SplitSeq(s, ",") {
		part, features, has := strings.Cut(strings.TrimSpace(part), "@")
		n, node, err := parsePart(part)
		if err != nil {
			return nil, fmt.Errorf("nodes %q: %w", s, err)
		}
		if has {
			for _, f := range slices.Compact(slices.Sorted(strings.SplitSeq(features, "+"))) {
				if d, is := strings.CutPrefix(f, cluster.DataFeature); is {
					if _, _, err := datasets.Parse(d); err != nil {
						return nil, fmt.Errorf("nodes %q: data set %w", s, err)
					}
					node.Data = append(node.Data, d)
				} else {
					node.Features = append(node.Features, f)
				}
			}
			if err := cluster.CheckFeatures(node.Features); err != nil {
				return nil, fmt.Errorf("nodes %q: %w", s, err)
			}
		}
		if n+len(out) > maxNodes {
			return nil, fmt.Errorf("nodes %q: more than %d nodes", s, maxNodes)
		}
		for range n {
			out = append(out, node)
		}
	}
	return out, nil
}

func parsePart(part string) (count int, node NodeSpec, err error) {
	switch part {
	case "":
		return 0, node, fmt.Errorf("empty part; %s", specForms)
	case "nvml":
		return 1, NodeSpec{Provider: "nvml"}, nil
	case "cpu":
		return 1, NodeSpec{Provider: "none"}, nil
	}
	nodes, rest, ok := strings.Cut(part, "x")
	count, err = strconv.Atoi(nodes)
	if !ok || err != nil || count < 1 || count > maxNodes {
		return 0, node, fmt.Errorf("%q: the number of nodes must be 1 to %d; %s", part, maxNodes, specForms)
	}
	if rest == "cpu" {
		return count, NodeSpec{Provider: "none"}, nil
	}
	gpus, typ, ok := strings.Cut(rest, "x")
	g, err := strconv.Atoi(gpus)
	if !ok || err != nil || g < 1 || g > sim.MaxCards {
		return 0, node, fmt.Errorf("%q: the number of GPUs must be 1 to %d; %s", part, sim.MaxCards, specForms)
	}
	if _, err := sim.ParseSpecs(fmt.Sprintf("%dx%s", g, typ)); err != nil {
		return 0, node, fmt.Errorf("%q: %w", part, err)
	}
	return count, NodeSpec{Provider: "sim", GPUs: g, Type: typ}, nil
}
