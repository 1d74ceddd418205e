package apiconv

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

func whereFromAPI(m *apiv1.Where) (*cluster.Where, error) {
	return cluster.WhereOf(m.GetNodes(), m.GetExclude(), m.GetFeatures(), m.GetWhole(), m.GetReservation(), m.GetSwitches())
}

func whereToAPI(w *cluster.Where) *apiv1.Where {
	if w == nil {
		return nil
	}
	return &apiv1.Where{Nodes: w.Nodes.String(), Exclude: w.Exclude.String(), Features: w.Features.String(), Whole: w.Whole, Reservation: w.Reservation, Switches: w.Switches.String()}
}

// Features converts the features that an agent reports for its node.
func Features(node string, has []string) ([]string, error) {
	out := slices.Compact(slices.Sorted(slices.Values(has)))
	if err := cluster.CheckFeatures(out); err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: %v", node, err)
	}
	return out, nil
}
