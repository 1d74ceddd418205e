package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/berth-scheduler/berth/scheduler/sim/workload"
)

var (
	nodeGPUs  = []string{"gpu_capacity_num", "cap_gpu", "gpu", "gpus"}
	nodeTypes = []string{"gpu_model", "gpu_type", "model"}
)

// isNodeList reports whether a table lists machines rather than jobs.
func isNodeList(t *table) bool {
	_, _, gpus := t.first(nodeGPUs...)
	_, _, cpu := t.first("cpu_milli", "cpu_num", "cap_cpu")
	return gpus && cpu || t.has("vc", "num_nodes")
}

// perVC is how many GPUs a node of a list of virtual clusters has: Helios'.
const perVC = 8

// ReadNodes reads a list of machines: openb's, GFS's, PAI's, or Helios' virtual
// clusters. Equal neighbours become one entry. A bad row is an error: a cluster
// with missing nodes would make every figure wrong.
func ReadNodes(path string) ([]workload.NodeSpec, error) {
	r, c, err := open(path)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return readNodes(filepath.Base(path), r)
}

// LoadNodes reads the list of machines in a file, or the one in a folder next to
// its jobs.
func LoadNodes(path string) ([]workload.NodeSpec, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return ReadNodes(path)
	}
	_, nodes, err := survey(path, &Options{})
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%s: holds no list of nodes; such a list has a column of GPUs and one of cores", path)
	}
	return nodes, nil
}

func readNodes(name string, r io.Reader) ([]workload.NodeSpec, error) {
	t, err := newTable(name, r)
	if err != nil {
		return nil, err
	}
	if !isNodeList(t) {
		return nil, fmt.Errorf("%s: is no list of nodes; it needs a column of GPUs and one of cores", name)
	}
	var out []workload.NodeSpec
	for {
		bad, fatal := t.next()
		if errors.Is(fatal, io.EOF) {
			return out, nil
		}
		n, err := nodeOf(t)
		if err = errors.Join(bad, fatal, err); err != nil {
			return nil, fmt.Errorf("%s: row %d: %w", name, t.row, err)
		}
		if k := len(out) - 1; k >= 0 {
			last := out[k]
			last.Count = n.Count
			if last == n {
				out[k].Count += n.Count
				continue
			}
		}
		out = append(out, n)
	}
}

func nodeOf(t *table) (workload.NodeSpec, error) {
	if t.has("vc", "num_nodes") {
		n, err := t.between(0, 1e5, "num_nodes")
		return workload.NodeSpec{Count: int(n), GPUs: perVC}, err
	}
	gpus, err := t.between(0, 64, nodeGPUs...)
	if err != nil {
		return workload.NodeSpec{}, err
	}
	s := workload.NodeSpec{Count: 1, GPUs: int(gpus)}
	if gpus > 0 {
		s.GPUType = t.text(nodeTypes...)
	}
	milli, err := t.between(0, 1e9, "cpu_milli")
	if err != nil {
		return s, err
	}
	cores, err := t.between(0, 1e6, "cpu_num", "cap_cpu")
	if err != nil {
		return s, err
	}
	mib, err := t.between(0, 1e9, "memory_mib")
	if err != nil {
		return s, err
	}
	gib, err := t.between(0, 1e6, "cap_mem")
	if err != nil {
		return s, err
	}
	s.CPUMilli, s.HostMemMiB = int64(math.Round(milli+1000*cores)), int64(math.Round(mib+1024*gib))
	return s, nil
}
