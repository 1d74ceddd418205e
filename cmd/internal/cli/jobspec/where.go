package jobspec

import (
	"errors"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// whereFields returns the fields for the nodes and reservation of a job.
func whereFields() []Field {
	return []Field{
		{"nodelist", "w", kindText, "run on all nodes of this `LIST`, such as gpu[01-04], plus others if --nodes is larger", func(r *Request, v string) error {
			r.Where.Nodes = v
			_, err := cluster.ParseHostList(v)
			return err
		}},
		{"exclude", "x", kindText, "do not run on any node of this `LIST`", func(r *Request, v string) error {
			r.Where.Exclude = v
			_, err := cluster.ParseHostList(v)
			return err
		}},
		{"constraint", "C", kindText, "run only on nodes with these `FEATURES`, such as a100&nvlink|h100", func(r *Request, v string) error {
			r.Where.Features = v
			_, err := cluster.ParseFeatures(v)
			return err
		}},
		{"data", "", kindList, "prefer nodes that have the data set `NAME` (see berth node show), or with NAME! run only there; repeatable", func(r *Request, v string) error {
			for name := range strings.SplitSeq(v, ",") {
				name, must := strings.CutSuffix(name, "!")
				if err := cluster.CheckDataName(name); err != nil {
					return err
				}
				if must {
					r.needs = append(r.needs, name)
				}
				if !slices.Contains(r.Spec.Data, name) {
					r.Spec.Data = append(r.Spec.Data, name)
				}
			}
			return nil
		}},
		{"reservation", "", kindText, "run inside the reservation `NAME` (see berth reservation list)", func(r *Request, v string) error {
			r.Where.Reservation = v
			return cluster.CheckReservationName(v)
		}},
		{"switches", "", kindText, "run on at most COUNT switches, such as 1, and wait at most TIME for that: `COUNT@TIME`, such as 1@30m (default 5m)", func(r *Request, v string) error {
			count, wait, said := strings.Cut(v, "@")
			if said {
				d, err := units.ParseDuration(wait)
				if err != nil {
					return err
				}
				count += "@" + d.String()
			}
			w, err := cluster.ParseSwitches(count)
			if err != nil {
				return errors.New(strings.TrimPrefix(err.Error(), "switches: "))
			}
			r.Where.Switches = w.String()
			return nil
		}},
		{"whole-nodes", "", KindTruth, "whole nodes: no other jobs, all cores, and all GPUs if the job asks for any", truth(func(r *Request) *bool { return &r.Where.Whole })},
	}
}

// require makes the nodes of a job those that have the data sets that it cannot do
// without.
func (r *Request) require() error {
	for _, name := range r.needs {
		f, err := cluster.ParseFeatures(r.Where.Features)
		if err == nil {
			f, err = f.And(cluster.DataFeature + name)
		}
		if err != nil {
			return err
		}
		r.Where.Features = f.String()
	}
	return nil
}
