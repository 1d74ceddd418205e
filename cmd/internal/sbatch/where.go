package sbatch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cluster/hostnames"
)

func readExclusive(r *resolver, v string) (*verdict, error) {
	switch v {
	case "":
		r.req.WholeNodes = true
		return honour()
	case "user", "mcs":
		return &verdict{fate: Ignored, note: "who shares a GPU with whom is the site's policy; --exclusive asks for whole nodes"}, nil
	}
	return nil, Message("Invalid --exclusive specification")
}

// hosts reads a list of nodes; a file of them is refused.
func hosts(option, v string) (cluster.HostList, *verdict) {
	if strings.Contains(v, "/") {
		return cluster.HostList{}, &verdict{Refused, "nodes are not read from a file", "name them, as --" + option + "=gpu[01-04]"}
	}
	list, err := cluster.ParseHostList(v)
	if err != nil {
		return list, &verdict{Refused, strings.TrimPrefix(err.Error(), "nodes: "), "name them, as --" + option + "=gpu[01-04]"}
	}
	return list, nil
}

func readNodeList(r *resolver, v string) (*verdict, error) {
	list, no := hosts("nodelist", v)
	if no != nil {
		return no, nil
	}
	r.named = list.Names()
	return honour()
}

func readExclude(r *resolver, v string) (*verdict, error) {
	if _, no := hosts("exclude", v); no != nil {
		return no, nil
	}
	r.req.Exclude = v
	return honour()
}

func readConstraint(r *resolver, v string) (*verdict, error) {
	f, err := cluster.ParseFeatures(v)
	if err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		return &verdict{Refused, why, "name features joined by & and |, such as --constraint='a100&nvlink|h100'"}, nil
	}
	r.req.Constraint = f.String()
	return honour()
}

func readReservation(r *resolver, v string) (*verdict, error) {
	if err := cluster.CheckReservationName(v); err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		return &verdict{Refused, why, "name one reservation shown by berth reservation list"}, nil
	}
	r.req.Reservation = v
	r.keep("reservation", v)
	return honour()
}

// finishWhere settles the named nodes: as in Slurm, the job has all of them,
// unless it asks for fewer.
func (r *resolver) finishWhere() {
	n := len(r.named)
	switch {
	case n == 0:
		return
	case r.req.Nodes > 0 && r.req.Nodes < int64(n) || r.nodesSaid && r.req.Nodes == 0 && n > 1:
		left := max(1, int(r.req.Nodes))
		r.note("nodelist", "names more nodes than the job has; using the first %d", left)
		r.named = slices.Clone(r.named[:left])
	case r.req.Nodes < int64(n) && n > 1:
		r.req.Nodes = int64(n)
	}
	if len(r.named) > cluster.MaxNodes {
		r.refuse("nodelist", fmt.Sprintf("names %d nodes, a job runs on at most %d", len(r.named), cluster.MaxNodes), "name fewer")
		return
	}
	if len(r.named) == 1 && r.req.Nodes < 2 {
		r.req.Node = string(r.named[0])
		return
	}
	r.req.NodeList = hostnames.Fold(r.named)
}

// readSwitches reads how many switches, and after an @ how long the job waits
// for them, written as a time limit.
func readSwitches(r *resolver, v string) (*verdict, error) {
	count, wait, said := strings.Cut(v, "@")
	if said {
		d, limited, err := ParseTime(wait)
		if err != nil {
			return nil, Message("Invalid --switches specification")
		}
		if !limited || d > cluster.MaxSwitchWait {
			d = cluster.MaxSwitchWait
		}
		count += "@" + d.String()
	}
	w, err := cluster.ParseSwitches(count)
	if err != nil {
		return nil, Message("Invalid --switches specification")
	}
	r.req.Switches = w.String()
	return honour()
}
