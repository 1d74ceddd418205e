package jobspec

import (
	"github.com/berth-scheduler/berth/cluster"
)

// whereFields say on which nodes a job may run, and inside of what.
func whereFields() []Field {
	return []Field{
		{"nodelist", "w", kindText, "run on all nodes of this `LIST`, such as gpu[01-04], and on others beside them if --nodes is more", func(r *Request, v string) error {
			r.Where.Nodes = v
			_, err := cluster.ParseHostList(v)
			return err
		}},
		{"exclude", "x", kindText, "run on no node of this `LIST`", func(r *Request, v string) error {
			r.Where.Exclude = v
			_, err := cluster.ParseHostList(v)
			return err
		}},
		{"constraint", "C", kindText, "run on nodes with these `FEATURES` only, as a100&nvlink|h100", func(r *Request, v string) error {
			r.Where.Features = v
			_, err := cluster.ParseFeatures(v)
			return err
		}},
		{"reservation", "", kindText, "run inside of the reservation `NAME`, as berth reservation list shows it", func(r *Request, v string) error {
			r.Where.Reservation = v
			return cluster.CheckReservationName(v)
		}},
		{"whole-nodes", "", KindTruth, "whole nodes: nobody else on them, all of their cores, and all of their GPUs if it asks for any", truth(func(r *Request) *bool { return &r.Where.Whole })},
	}
}
