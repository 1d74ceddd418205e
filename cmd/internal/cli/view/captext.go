package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// CapText says how shares of a GPU's memory are enforced and, if not
// everyone may share it, who may: "watch/same-user".
func CapText(g *apiv1.GPU) string {
	if g.GetCapMode() == "" || g.GetScope() == "" || g.GetScope() == cluster.ScopeAnyone.String() {
		return console.OrDash(g.GetCapMode())
	}
	return g.GetCapMode() + "/" + g.GetScope()
}

// CapsText says how the memory of a job's shares is enforced, "" for whole
// GPUs and if unknown.
func CapsText(gpus []*apiv1.GPUShare) string {
	var modes []string
	for _, g := range gpus {
		if m := g.GetCapMode(); m != "" && !g.GetShare().GetExclusive() && !slices.Contains(modes, m) {
			modes = append(modes, m)
		}
	}
	if len(modes) == 0 {
		return ""
	}
	return ", held by " + strings.Join(modes, " and ")
}

// PrintCaps says, below the GPUs of a node, who may share them and why no
// better cap applies; GPUs alike have one line.
func PrintCaps(e *console.Env, n *apiv1.Node) {
	type way struct{ mode, scope, reason string }
	var order []way
	cards := map[way][]string{}
	for _, g := range n.GetGpus() {
		k := way{g.GetCapMode(), g.GetScope(), g.GetCapReason()}
		if k.mode == "" || k.scope == "" {
			continue
		}
		if cards[k] == nil {
			order = append(order, k)
		}
		cards[k] = append(cards[k], fmt.Sprint(g.GetIndex()))
	}
	for _, k := range order {
		scope, err := cluster.ParseScope(k.scope)
		among := scope.Among()
		if err != nil {
			among = k.scope
		}
		if k.mode == "none" {
			among = "by nobody"
		}
		e.Printf("GPU %s: memory of shares held by %s, shared %s\n", strings.Join(cards[k], ", "), k.mode, among)
		for _, part := range strings.Split(k.reason, "; ") {
			if part != "" {
				e.Printf("  not %s\n", part)
			}
		}
	}
}
