package containerdrt

import (
	"strings"
	"testing"
)

func TestPolicyValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Policy
		want string
	}{
		{"default", Policy{}, ""},
		{"strict", Policy{Network: NetNone, ReadOnlyRoot: true, TmpBytes: 1 << 20, Pids: 16, Files: 64, Mounts: []string{"/home", "/data/sets"}}, ""},
		{"network", Policy{Network: "bridge"}, "want host or none"},
		{"tmp", Policy{TmpBytes: 1}, "tmp size is 1"},
		{"negative", Policy{LogBytes: -5}, "log size is -5"},
		{"pids", Policy{Pids: 3}, "pids is 3"},
		{"files", Policy{Files: 3}, "open files is 3"},
		{"processors", Policy{CPUSet: "all"}, "processors are"},
		{"the root", Policy{Mounts: []string{"/"}}, "other than /"},
		{"dots", Policy{Mounts: []string{"/home/../etc"}}, "without dots"},
		{"a part of etc", Policy{Mounts: []string{"/etc/ssl"}}, "would show jobs /etc"},
		{"above containerd", Policy{Mounts: []string{"/var"}}, "would show jobs /var/"},
		{"our own", Policy{Mounts: []string{"/srv/berth/agent/x"}}, "would show jobs /srv/berth/agent"},
		{"above our own", Policy{Mounts: []string{"/srv"}}, "would show jobs /srv/berth/agent"},
		{"a name that begins so", Policy{Mounts: []string{"/devel", "/process"}}, ""},
	} {
		err := c.p.validate("/srv/berth/agent")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestShmBytes(t *testing.T) {
	for _, c := range []struct{ set, memCap, want int64 }{
		{0, 0, 1 << 30}, {0, 8 << 30, 4 << 30}, {0, 32 << 20, 64 << 20}, {2 << 20, 8 << 30, 2 << 20},
	} {
		if got := (Policy{ShmBytes: c.set}).shmBytes(c.memCap); got != c.want {
			t.Errorf("policy %d under a cap of %d: got %d, want %d", c.set, c.memCap, got, c.want)
		}
	}
}
