package cli

import (
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"

	"github.com/berth-scheduler/berth/cmd/internal/units"
)

// containerFields are what a job may ask of what it runs in.
func containerFields() []field {
	return []field{
		{"image", "", kindText, "run in this container `IMAGE` instead of the node's own files", text(func(r *request) *string { return &r.spec.Image })},
		{"mount", "", kindList, "show the image a directory or file of the node, a `MOUNT` as SOURCE:TARGET or SOURCE:TARGET:ro; may be given again", func(r *request, v string) error {
			m, err := cluster.ParseMount(v)
			r.spec.Container.Mounts = append(r.spec.Container.Mounts, m)
			return err
		}},
		{"read-only", "", kindTruth, "the image's files cannot be changed; mounts, /tmp, /run and /dev/shm can", truth(func(r *request) *bool { return &r.spec.Container.ReadOnly })},
		{"tmp", "", kindAmount, "`SIZE` of the image's own /tmp, which counts as memory of the job", size(func(r *request) *int64 { return &r.spec.Container.TmpMiB })},
		{"shm", "", kindAmount, "`SIZE` of /dev/shm, which counts as memory of the job", size(func(r *request) *int64 { return &r.spec.Container.ShmMiB })},
		{"net", "", kindText, "what it sees of the network, `NET`: host, the node's, or none", func(r *request, v string) error {
			if v != string(cluster.NetHost) && v != string(cluster.NetNone) {
				return fmt.Errorf("network %s: want host or none", shortQuote(v))
			}
			r.spec.Container.Network = cluster.Network(v)
			return nil
		}},
	}
}

// setWarning reads the signal before the time limit.
func setWarning(r *request, v string) (err error) {
	r.spec.Warning, err = cluster.ParseWarning(v)
	return err
}

// The ways to open output files.
const (
	openAppend   = "append"
	openTruncate = "truncate"
)

func setOpenMode(r *request, v string) error {
	if v != openAppend && v != openTruncate {
		return fmt.Errorf("open mode %s: want append or truncate", shortQuote(v))
	}
	r.spec.Truncate = v == openTruncate
	return nil
}

// openMode is how the output files of a job are opened, "" for the usual way.
func openMode(s *apiv1.JobSpec) string {
	if s.GetTruncate() {
		return openTruncate
	}
	return ""
}

// warningOf is a job's warning, as it may be typed again.
func warningOf(s *apiv1.JobSpec) string {
	w := s.GetWarning()
	return cluster.Warning{Signal: w.GetSignal(), Before: w.GetBefore().AsDuration(), First: w.GetFirst()}.String()
}

// warningText tells what comes before a job's time limit.
func warningText(s *apiv1.JobSpec) string {
	w := s.GetWarning()
	if w.GetSignal() == "" {
		return ""
	}
	whom := "all of its processes"
	if w.GetFirst() {
		whom = "its first process"
	}
	return fmt.Sprintf("%s to %s, %s before the time limit", w.GetSignal(), whom, units.HumanDuration(w.GetBefore().AsDuration()))
}

// mountTexts are a job's mounts, as they may be typed again.
func mountTexts(s *apiv1.JobSpec) []string {
	out := []string{}
	for _, m := range s.GetContainer().GetMounts() {
		out = append(out, cluster.Mount{Source: string(m.GetSource()), Target: string(m.GetTarget()), ReadOnly: m.GetReadOnly()}.String())
	}
	return out
}

// containerText tells what a job asked of what it runs in, but for mounts.
func containerText(s *apiv1.JobSpec) string {
	c := s.GetContainer()
	var out []string
	if n := c.GetNetwork(); n != "" {
		out = append(out, "network "+n)
	}
	if c.GetReadOnly() {
		out = append(out, "read-only")
	}
	if n := c.GetTmpMib(); n > 0 {
		out = append(out, "/tmp of "+units.HumanMiB(n))
	}
	if n := c.GetShmMib(); n > 0 {
		out = append(out, "/dev/shm of "+units.HumanMiB(n))
	}
	return strings.Join(out, ", ")
}
