package jobspec

import (
	"github.com/berth-scheduler/berth/cluster"
)

// whereText is what was said of where the job may run.
type whereText struct {
	nodes, exclude, features, reservation string
	whole                                 bool
}

// whereFields say on which nodes a job may run, and inside of what.
func whereFields() []Field {
	return []Field{
		{"nodelist", "w", kindText, "run on all nodes of this `LIST`, such as gpu[01-04], and on others beside them if --nodes is more", func(r *Request, v string) error {
			r.where.nodes = v
			_, err := cluster.ParseHostList(v)
			return err
		}},
		{"exclude", "x", kindText, "run on no node of this `LIST`", func(r *Request, v string) error {
			r.where.exclude = v
			_, err := cluster.ParseHostList(v)
			return err
		}},
		{"constraint", "C", kindText, "run on nodes with these `FEATURES` only, as a100&nvlink|h100", func(r *Request, v string) error {
			r.where.features = v
			_, err := cluster.ParseFeatures(v)
			return err
		}},
		{"reservation", "", kindText, "run inside of the reservation `NAME`, as berth reservation list shows it", func(r *Request, v string) error {
			r.where.reservation = v
			return cluster.CheckReservationName(v)
		}},
		{"whole-nodes", "", KindTruth, "whole nodes: nobody else on them, all of their cores, and all of their GPUs if it asks for any", truth(func(r *Request) *bool { return &r.where.whole })},
	}
}

// settleWhere makes of it what the spec says. A job that names several nodes has
// as many.
func (r *Request) settleWhere() error {
	w, err := cluster.WhereOf(r.where.nodes, r.where.exclude, r.where.features, r.where.whole, r.where.reservation)
	if err != nil {
		return err
	}
	if w.Named() && int64(w.Nodes.Len()) > max(1, r.nodes) && r.nodes == 0 {
		r.nodes = int64(w.Nodes.Len())
	}
	r.Spec.Where = w
	return nil
}
