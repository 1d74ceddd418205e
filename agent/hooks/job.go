package hooks

// Kind is when a hook runs.
type Kind string

// The hooks of a node.
const (
	Prolog Kind = "prolog" // before an attempt is created
	Epilog Kind = "epilog" // after its processes have ended
)

// Job is what a hook is told about a job, in JSON.
type Job struct {
	Hook     Kind   `json:"hook"`
	Job      uint64 `json:"job_id"`
	Attempt  string `json:"attempt"`
	Name     string `json:"name"`
	User     string `json:"user"`
	UID      uint32 `json:"uid"`
	GID      uint32 `json:"gid"`
	Node     string `json:"node"`
	Restarts uint32 `json:"restart_count"`
	// Partition is "" where there are none, Image for a host job.
	Partition string `json:"partition"`
	Image     string `json:"image"`
	GPUs      []GPU  `json:"gpus"`
	CPUMilli  int64  `json:"cpu_milli"`
	MemMiB    int64  `json:"mem_mib"`
	// End is set in an epilog.
	End *End `json:"end,omitempty"`
}

// GPU is a job's share of a GPU.
type GPU struct {
	UUID      string `json:"uuid"`
	MemMiB    int64  `json:"mem_mib"`
	Milli     int64  `json:"milli"`
	Exclusive bool   `json:"exclusive"`
}

// End is how an attempt ended.
type End struct {
	State    string `json:"state"`
	ExitCode int32  `json:"exit_code"`
	Signal   int32  `json:"signal"`
	Reason   string `json:"reason"`
}
