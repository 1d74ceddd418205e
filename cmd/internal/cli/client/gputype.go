package client

import (
	"context"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// SlurmType finds the cluster's GPU type that a name of Slurm's configuration
// means: a100 is A100-SXM4-80GB where that is the only type with such a part.
func SlurmType(ctx context.Context, c *Client, asked string) (string, error) {
	nodes, err := GetNodes(ctx, c, nil)
	if err != nil {
		return "", err
	}
	var all, like []string
	for _, n := range nodes {
		for _, g := range n.GetGpus() {
			t := g.GetType()
			if t == asked {
				return t, nil
			}
			if slices.Contains(all, t) {
				continue
			}
			all = append(all, t)
			if TypeMatches(t, asked) {
				like = append(like, t)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(like)
	switch {
	case len(like) == 1:
		return like[0], nil
	case len(like) > 1:
		return "", cluster.Errorf(cluster.CodeInvalid, "GPU type %s: may be any of %s; name one with --gpu-type, on a #BERTH line or before the script",
			console.ShortQuote(asked), strings.Join(like, ", "))
	case len(all) == 0:
		return asked, nil // nothing to compare with: the coordinator decides
	default:
		return "", cluster.Errorf(cluster.CodeInvalid, "GPU type %s: the cluster has %s; name one with --gpu-type, on a #BERTH line or before the script",
			console.ShortQuote(asked), strings.Join(all, ", "))
	}
}

// TypeMatches compares by parts, so that a100 is not A1000, and a100_80gb is
// A100-SXM4-80GB.
func TypeMatches(typ, asked string) bool {
	parts := func(s string) []string {
		return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == '-' || r == '_' || r == '.' || r == ' ' })
	}
	have, want := parts(typ), parts(asked)
	for _, p := range want {
		if !slices.Contains(have, p) {
			return false
		}
	}
	return len(want) > 0
}
