package jobspec

import (
	"fmt"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"

	"github.com/berth-scheduler/berth/cmd/internal/units"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// containerFields returns the fields for a job's container.
func containerFields() []Field {
	return []Field{
		{"image", "", kindText, "run in this container `IMAGE` instead of on the node's file system", text(func(r *Request) *string { return &r.Spec.Image })},
		{"mount", "", kindList, "mount a directory or file of the node into the image, a `MOUNT` SOURCE:TARGET or SOURCE:TARGET:ro; repeatable", func(r *Request, v string) error {
			m, err := cluster.ParseMount(v)
			r.Spec.Container.Mounts = append(r.Spec.Container.Mounts, m)
			return err
		}},
		{"read-only", "", KindTruth, "make the image read-only; mounts, /tmp, /run and /dev/shm stay writable", truth(func(r *Request) *bool { return &r.Spec.Container.ReadOnly })},
		{"tmp", "", kindAmount, "`SIZE` of the image's own /tmp; counts as the job's memory", size(func(r *Request) *int64 { return &r.Spec.Container.TmpMiB })},
		{"shm", "", kindAmount, "`SIZE` of /dev/shm; counts as the job's memory", size(func(r *Request) *int64 { return &r.Spec.Container.ShmMiB })},
		{"net", "", kindText, "network access, `NET`: host (the node's network) or none", func(r *Request, v string) error {
			if v != string(cluster.NetHost) && v != string(cluster.NetNone) {
				return fmt.Errorf("network %s: want host or none", console.ShortQuote(v))
			}
			r.Spec.Container.Network = cluster.Network(v)
			return nil
		}},
	}
}

// setWarning reads the signal before the time limit.
func setWarning(r *Request, v string) (err error) {
	r.Spec.Warning, err = cluster.ParseWarning(v)
	return err
}

// The ways to open output files.
const (
	openAppend   = "append"
	openTruncate = "truncate"
)

func setOpenMode(r *Request, v string) error {
	if v != openAppend && v != openTruncate {
		return fmt.Errorf("open mode %s: want append or truncate", console.ShortQuote(v))
	}
	r.Spec.Truncate = v == openTruncate
	return nil
}

// OpenMode returns how the output files of a job are opened, "" for the default.
func OpenMode(s *apiv1.JobSpec) string {
	if s.GetTruncate() {
		return openTruncate
	}
	return ""
}

// WarningOf returns a job's warning as it may be typed again.
func WarningOf(s *apiv1.JobSpec) string {
	w := s.GetWarning()
	return cluster.Warning{Signal: w.GetSignal(), Before: w.GetBefore().AsDuration(), First: w.GetFirst()}.String()
}

// WarningText says what signal precedes a job's time limit.
func WarningText(s *apiv1.JobSpec) string {
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

// MountTexts returns a job's mounts as they may be typed again.
func MountTexts(s *apiv1.JobSpec) []string {
	out := []string{}
	for _, m := range s.GetContainer().GetMounts() {
		out = append(out, cluster.Mount{Source: string(m.GetSource()), Target: string(m.GetTarget()), ReadOnly: m.GetReadOnly()}.String())
	}
	return out
}

// ContainerText describes the container a job requested, except for mounts.
func ContainerText(s *apiv1.JobSpec) string {
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
