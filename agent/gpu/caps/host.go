package caps

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

// Host is what the modes depend on in a node.
type Host struct {
	// CgroupV2: the unified hierarchy is mounted. Dmem: it has the kernel's device memory
	// controller. MiscNVIDIA: the driver has an entry in the miscellaneous controller.
	CgroupV2, Dmem, MiscNVIDIA bool
	// MPSControl is the path of nvidia-cuda-mps-control, "" if not installed.
	MPSControl string
	// Root: the agent may act for other users.
	Root bool
	// Limiter is nil where no memory limit of a control group can be set.
	Limiter Limiter
}

// ReadHost inspects the node below root, which is "/" except in tests. What it cannot read
// counts as absent.
func ReadHost(root string) Host {
	group := filepath.Join(root, "sys/fs/cgroup")
	controllers, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	h := Host{CgroupV2: err == nil, Root: os.Geteuid() == 0}
	for _, c := range strings.Fields(string(controllers)) {
		h.Dmem = h.Dmem || c == "dmem"
	}
	h.MiscNVIDIA = h.CgroupV2 && hasLine(filepath.Join(group, "misc.capacity"), "nvidia")
	for _, dir := range []string{"usr/bin", "usr/local/bin", "usr/local/nvidia/bin", "opt/nvidia/bin"} {
		path := filepath.Join(root, dir, "nvidia-cuda-mps-control")
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0 {
			h.MPSControl = path
			break
		}
	}
	return h
}

// hasLine reports whether a line of a file begins with word.
func hasLine(path, word string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(strings.TrimSpace(s.Text()), word) {
			return true
		}
	}
	return false
}
