package client

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// GPUType finds the cluster's GPU type that a user means: a100 is
// A100-SXM4-80GB if that is the only type with such a part. A name like no
// type stays as it is, since nodes that have it may join.
func GPUType(ctx context.Context, c *Client, asked string) (string, error) {
	if asked == "" {
		return "", nil
	}
	typ, _, err := knownType(ctx, c, asked)
	return cmp.Or(typ, asked), err
}

// SlurmType is GPUType for a name of Slurm's configuration, which must
// resemble one of the cluster's types, if there are any.
func SlurmType(ctx context.Context, c *Client, asked string) (string, error) {
	typ, all, err := knownType(ctx, c, asked)
	switch {
	case err != nil || typ != "":
		return typ, err
	case len(all) == 0:
		return asked, nil // nothing to compare with: the coordinator decides
	default:
		return "", cluster.Errorf(cluster.CodeInvalid, "GPU type %s: the cluster has %s; name one with --gpu-type, on a #BERTH line or before the script",
			console.ShortQuote(asked), strings.Join(all, ", "))
	}
}

// knownType returns the cluster's type that equals or resembles asked, "" for none.
func knownType(ctx context.Context, c *Client, asked string) (typ string, all []string, err error) {
	resp, err := ListNodes.Ask(ctx, c, Reads, &apiv1.ListNodesRequest{Brief: true})
	if err != nil {
		return "", nil, err
	}
	var like []string
	for _, n := range resp.GetNodes() {
		for _, g := range n.GetGpus() {
			t := g.GetType()
			if t == asked {
				return t, nil, nil
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
	switch len(like) {
	case 0:
		return "", all, nil
	case 1:
		return like[0], all, nil
	}
	return "", nil, cluster.Errorf(cluster.CodeInvalid, "GPU type %s: matches %s; name one with --gpu-type, on a #BERTH line or before the script",
		console.ShortQuote(asked), strings.Join(like, ", "))
}

// TypeMatches compares part by part, so that a100 is not A1000, and
// a100_80gb is A100-SXM4-80GB.
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
