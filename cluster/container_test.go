package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseMount(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Mount{
		"/data":             {"/data", "/data", false},
		"/data:/mnt":        {"/data", "/mnt", false},
		"/data/a b:/mnt:ro": {"/data/a b", "/mnt", true},
		"/data:/mnt:rw":     {"/data", "/mnt", false},
	} {
		got, err := ParseMount(in)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", in, err, d)
		}
		if again, err := ParseMount(got.String()); again != got || err != nil {
			t.Errorf("%s: %s reads as %v (%v)", in, got, again, err)
		}
	}
}

func TestBadMounts(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                    "absolute path",
		"/":                                   "the source is /",
		"/data:/":                             "the target is /",
		"data:/data":                          "the source must be an absolute path",
		"/data:data":                          "the target must be an absolute path",
		"/data/../etc:/x":                     "the source must be an absolute path",
		"/data:/x/..":                         "the target must be an absolute path",
		"/data/:/x":                           "one at its end",
		"/etc:/x":                             "the source is under /etc",
		"/etc/shadow:/x":                      "the source is under /etc",
		"/proc/1/root:/x":                     "the source is under /proc",
		"/sys/fs/cgroup:/x":                   "the source is under /sys",
		"/dev/sda:/x":                         "the source is under /dev",
		"/data:/proc":                         "the target is under /proc",
		"/data:/dev/shm":                      "the target is under /dev",
		"/data:/sys/fs":                       "the target is under /sys",
		"/data:/x:bind":                       `want SOURCE:TARGET, or ro or rw`,
		"/a:/b:ro:rw":                         "has 3 colons",
		"/da\nta:/x":                          "control character",
		"/data\x00:/x":                        "control character",
		"/data,ro:/x":                         "a comma",
		"/d\xff:/x":                           "is not UTF-8",
		"/" + strings.Repeat("a", MaxPathLen): "at most",
	} {
		_, err := ParseMount(in)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	for _, s := range []string{"/a", "/a:/b", "/a:/b:ro", "/etc:/x", "a:b", "::", "/a:/b:rw", "/a:/proc/../b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseMount(s)
		if err != nil {
			return
		}
		again, err := ParseMount(m.String())
		if err != nil || again != m {
			t.Fatalf("%q gives %v, whose form %q gives %v (%v)", s, m, m, again, err)
		}
		for _, bad := range []string{"/proc", "/sys", "/dev"} {
			if below(m.Target, bad) || below(m.Source, bad) {
				t.Fatalf("%q reaches %s", s, bad)
			}
		}
	})
}

func TestCheckContainer(t *testing.T) {
	t.Parallel()
	many := make([]Mount, MaxMounts+1)
	for i := range many {
		many[i] = Mount{Source: "/data", Target: "/d" + strings.Repeat("x", i+1)}
	}
	for _, c := range []struct {
		name  string
		image string
		c     Container
		want  string
	}{
		{"nothing", "", Container{}, ""},
		{"all of it", "img", Container{Network: NetNone, Mounts: many[:MaxMounts], ReadOnly: true, TmpMiB: 64, ShmMiB: 64}, ""},
		{"without an image", "", Container{Network: NetNone, ShmMiB: 64}, ""},
		{"a bridge", "", Container{Network: "bridge"}, "must be host or none"},
		{"too many", "img", Container{Mounts: many}, "33 of them, at most 32"},
		{"a target twice", "img", Container{Mounts: []Mount{{"/a", "/x", false}, {"/b", "/x", true}}}, "is named twice"},
		{"an unchecked mount", "img", Container{Mounts: []Mount{{"/etc", "/x", false}}}, "is under /etc"},
		{"mount of a host job", "", Container{Mounts: many[:1]}, "mount and image"},
		{"read-only host job", "", Container{ReadOnly: true}, "read_only and image"},
		{"tmp of a host job", "", Container{TmpMiB: 1}, "tmp and image"},
		{"negative", "img", Container{TmpMiB: -1}, "tmp: -1 MiB"},
		{"more than its memory", "img", Container{ShmMiB: 2048}, "shm and mem"},
	} {
		s := Spec{Image: c.image, MemMiB: 1024, Container: c.c}
		err := s.checkContainer()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestParseWarning(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Warning{
		"USR1":         {"USR1", time.Minute, false},
		"B:SIGUSR2@90": {"USR2", 90 * time.Second, true},
		"term@2m":      {"TERM", 2 * time.Minute, false},
		"B:INT@65535":  {"INT", 65535 * time.Second, true},
	} {
		got, err := ParseWarning(in)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v %s", in, err, d)
		}
		if again, err := ParseWarning(got.String()); again != got || err != nil {
			t.Errorf("%s: %s reads as %v (%v)", in, got, again, err)
		}
	}
	for in, want := range map[string]string{
		"": "want SIGNAL", "B:": "want SIGNAL", "KILL@60": "is not one of", "USR1@": "is not a time", "USR1@0": "outside 1s", "USR1@70000": "outside 1s",
		"R:USR1": "is not one of", "USR1@1500ms": "whole number of seconds", "10@5": "is not one of",
	} {
		if _, err := ParseWarning(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", in, err, want)
		}
	}
}

func TestWarningBeforeTheStart(t *testing.T) {
	t.Parallel()
	s := Spec{Warning: Warning{Signal: "USR1", Before: time.Minute}}
	for limit, ok := range map[time.Duration]bool{0: true, 30 * time.Second: false, time.Minute: false, 2 * time.Minute: true} {
		s.TimeLimit = limit
		if err := s.checkWarning(); (err == nil) != ok {
			t.Errorf("a minute before the end of %s: %v", limit, err)
		}
	}
}

func TestPartitionNet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		have  []Network
		asked Network
		want  Network
		bad   bool
	}{
		{nil, "", "", false}, {nil, NetHost, NetHost, false},
		{[]Network{NetNone, NetHost}, "", NetNone, false}, {[]Network{NetNone, NetHost}, NetHost, NetHost, false},
		{[]Network{NetNone}, NetHost, "", true}, {[]Network{NetNone}, NetNone, NetNone, false},
	} {
		p := &Partition{Name: "gpu", Networks: c.have}
		got, err := p.Net(c.asked)
		if got != c.want || (err != nil) != c.bad {
			t.Errorf("%v of %v: got %q, %v", c.asked, c.have, got, err)
		}
	}
}
