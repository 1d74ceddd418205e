package containerdrt

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/agent/launch"
)

// testSwapped: what is mounted is what was checked, whatever becomes of the
// path meanwhile.
func testSwapped(t *testing.T, b *bench, image string) {
	src := filepath.Join(b.out, "swap")
	if err := errors.Join(os.Mkdir(src, 0o755), os.WriteFile(src+"/mine", nil, 0o644), os.Chown(src, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	l := b.job(301, image, "/bin/busybox", "true")
	l.Mounts = []launch.Mount{{Source: src, Target: "/x"}}
	binds, err := b.rt.binds.open(l)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := binds.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(os.Rename(src, src+".old"), os.Symlink("/etc", src)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(binds.specs[0].Source)
	if err != nil || len(entries) != 1 || entries[0].Name() != "mine" {
		t.Errorf("mounted is %v (%v), want what was checked", entries, err)
	}
}

// testSetuid: a program that belongs to root and has the bit is run by its
// user as anybody's.
func testSetuid(t *testing.T, b *bench, _ string) {
	id, err := os.ReadFile("/usr/bin/id")
	suid := filepath.Join(b.out, "suid-id")
	if err == nil {
		err = os.WriteFile(suid, id, 0o755)
	}
	if err := errors.Join(err, os.Chown(suid, 0, 0), os.Chmod(suid, 0o4755)); err != nil {
		t.Fatal(err)
	}
	if got := b.says(b.job(310, "", suid, "-u")); !slices.Equal(got, []string{"65534"}) {
		t.Errorf("a setuid program runs as uid %q", got)
	}
}

// testOthersProcesses: a job sees, signals and traces nobody else's; one in an
// image does not even see them. It may remove the directory it works in.
func testOthersProcesses(t *testing.T, b *bench, image string) {
	const script = `cat /proc/1/environ >/dev/null 2>&1 && echo reads environ
cat /proc/1/root/etc/shadow >/dev/null 2>&1 && echo reads shadow
kill -0 1 2>/dev/null && [ "$$" != 1 ] && [ "$SEES" = all ] && echo signals others
`
	host := b.job(320, "", "/bin/sh", "-c", script+"echo end")
	host.Env = append(host.Env, "SEES=all")
	if got := b.says(host); !slices.Equal(got, []string{"end"}) {
		t.Errorf("host job: %q", got)
	}
	inside := b.job(321, image, "/bin/busybox", "sh", "-c", `busybox ls /proc | busybox grep -c '^[0-9]'; mkdir /tmp/w && cd /tmp/w && busybox rmdir /tmp/w && echo gone; /bin/busybox pwd >/dev/null 2>&1; echo end`)
	got := b.says(inside)
	if len(got) != 3 || got[1] != "gone" || got[2] != "end" || len(strings.TrimSpace(got[0])) != 1 {
		t.Errorf("image job: %q, want a handful of processes, all its own", got)
	}
}
