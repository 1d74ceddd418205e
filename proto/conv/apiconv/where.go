package apiconv

import (
	"slices"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// WhereOf reads where a job may run; nil is anywhere. The error is a
// *cluster.Error of CodeInvalid that names the field.
func WhereOf(nodes, exclude, features string, whole bool, reservation string) (*cluster.Where, error) {
	w := &cluster.Where{Whole: whole, Reservation: reservation}
	var err error
	if nodes != "" {
		if w.Nodes, err = cluster.ParseHostList(nodes); err != nil {
			return nil, cluster.Errorf(cluster.CodeInvalid, "nodelist: %v", err)
		}
	}
	if exclude != "" {
		if w.Exclude, err = cluster.ParseHostList(exclude); err != nil {
			return nil, cluster.Errorf(cluster.CodeInvalid, "exclude: %v", err)
		}
	}
	if w.Features, err = cluster.ParseFeatures(features); err != nil {
		return nil, err
	}
	if nodes == "" && exclude == "" && features == "" && !whole && reservation == "" {
		return nil, nil
	}
	return w, nil
}

func whereFromAPI(m *apiv1.Where) (*cluster.Where, error) {
	return WhereOf(m.GetNodes(), m.GetExclude(), m.GetFeatures(), m.GetWhole(), m.GetReservation())
}

func whereToAPI(w *cluster.Where) *apiv1.Where {
	if w == nil {
		return nil
	}
	return &apiv1.Where{Nodes: w.Nodes.String(), Exclude: w.Exclude.String(), Features: w.Features.String(), Whole: w.Whole, Reservation: w.Reservation}
}

// Features takes over what an agent says that its node has.
func Features(node string, has []string) ([]string, error) {
	out := slices.Compact(slices.Sorted(slices.Values(has)))
	if err := cluster.CheckFeatures(out); err != nil {
		return nil, cluster.Errorf(cluster.CodeInvalid, "node %s: %v", node, err)
	}
	return out, nil
}
