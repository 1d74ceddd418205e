package simcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/scheduler/sim/slowdown"
	"github.com/berth-scheduler/berth/scheduler/sim/trace"
	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

func notFoundIfMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &console.ExitError{Code: console.ExitNotFound, Err: err}
	}
	return err
}

// fleet reads the cluster, or takes the one that belongs to the trace.
func (o *simWorld) fleet(src *simSource) (workload.Fleet, string, error) {
	w := src.w
	var f workload.Fleet
	var why string
	switch {
	case o.cluster != "":
		var err error
		if f, why, err = clusterOf(o.cluster); err != nil {
			return f, "", fmt.Errorf("--cluster: %w", err)
		}
	case src.fleet != nil:
		f, why = *src.fleet, src.why
	default:
		f, why = trace.FleetFor(w)
	}
	if o.maxShares > 0 {
		f.MaxShares = o.maxShares
		if o.cluster == "" && src.fleet != nil { // its nodes describe the past, not the request
			f.Nodes = slices.Clone(f.Nodes)
			for i := range f.Nodes {
				f.Nodes[i].MaxShares = 0
			}
		}
	}
	f.Pool = f.Pool || o.pool
	if !f.Pool {
		for i := range w.Jobs {
			if w.Jobs[i].GPUs > f.Widest() {
				f.Pool = true
				why += "; pooled into one node, since a job is wider than a node"
				break
			}
		}
	}
	return f, why, f.Check()
}

// clusterOf reads a cluster: NODESxGPUS:TYPE, a list of nodes, a folder with
// one, or a YAML file.
func clusterOf(what string) (workload.Fleet, string, error) {
	if f, ok := trace.ParseFleet(what); ok {
		return f, fmt.Sprintf("%d GPUs, as asked for by %s", f.GPUs(), what), f.Check()
	}
	info, err := os.Stat(what)
	if err != nil {
		return workload.Fleet{}, "", notFoundIfMissing(err)
	}
	name := strings.TrimSuffix(what, ".gz")
	if !info.IsDir() && !strings.HasSuffix(name, ".csv") && !strings.HasSuffix(name, ".txt") && !strings.HasSuffix(name, ".psv") {
		f, err := readFleet(what)
		return f, fmt.Sprintf("%d GPUs, read from %s", f.GPUs(), what), err
	}
	f := workload.Fleet{Name: what}
	if f.Nodes, err = trace.LoadNodes(what); err != nil {
		return f, "", err
	}
	return f, fmt.Sprintf("%d GPUs, the nodes of %s", f.GPUs(), what), f.Check()
}

const maxFleetFile = 1 << 20

// readFleet reads a description of nodes; unknown keys are errors.
func readFleet(path string) (workload.Fleet, error) {
	var f workload.Fleet
	info, err := os.Stat(path)
	if err != nil {
		return f, notFoundIfMissing(err)
	}
	if info.Size() > maxFleetFile {
		return f, fmt.Errorf("%s: %d bytes, at most %d are read", path, info.Size(), maxFleetFile)
	}
	r, err := os.Open(path)
	if err != nil {
		return f, err
	}
	defer r.Close()
	if f, err = DecodeFleet(io.LimitReader(r, maxFleetFile)); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// DecodeFleet reads one description in YAML.
func DecodeFleet(r io.Reader) (workload.Fleet, error) {
	var f workload.Fleet
	dec := yaml.NewDecoder(r)
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		return f, err
	}
	return f, f.Check()
}

// interference builds the requested interference model.
func (o *simWorld) interference() (slowdown.Interference, error) {
	switch o.world {
	case "curve":
		return slowdown.DefaultCurve(), nil
	case "none":
		return slowdown.Free{}, nil
	case "linear":
		return slowdown.Linear{Beside: 0.35}, nil
	case "stages":
		return slowdown.Stages{}, nil
	case "gavel", "gavel-physical", "lucid":
		if o.colocation == "" {
			return nil, console.Usagef("--interference %s: requires --colocation, the folder with its tables", o.world)
		}
		return trace.LoadPairs(o.colocation, o.world)
	}
	return nil, console.Usagef("--interference %s: want one of curve, none, linear, stages, gavel, gavel-physical, lucid", console.ShortQuote(o.world))
}
