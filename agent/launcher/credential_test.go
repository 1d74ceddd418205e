package launcher

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
)

// TestPlaceCredential: every job that can reach the cluster has its credential, in a
// file that its user alone may read, which is gone with the attempt.
func TestPlaceCredential(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		image, script string
		imagesToo     bool
		credential    string
		want          bool
	}{
		"a command":                             {credential: "secret", want: true},
		"a script":                              {credential: "secret", script: "#!/bin/sh\n", want: true},
		"of a leader that gives none":           {script: "#!/bin/sh\n"},
		"an image with a way to the cluster":    {image: "lab/torch", script: "#!/bin/sh\n", imagesToo: true, credential: "secret", want: true},
		"an image without one":                  {image: "lab/torch", script: "#!/bin/sh\n", credential: "secret"},
		"a command in an image, which has none": {image: "lab/torch", imagesToo: true, credential: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &Launcher{cfg: Config{Scripts: filepath.Join(t.TempDir(), "scripts"), Tools: Tools{Socket: "/s/berth.sock", ImagesToo: c.imagesToo}}}
			as := &nodev1.Assignment{Job: 7, Attempt: 2, Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), Image: c.image, Script: []byte(c.script), Credential: c.credential}
			path := filepath.Join(a.scriptDir(conv.AttemptOf(as)), "credential")
			for range 2 { // what a crash left is replaced
				l := &launch.Launch{ID: conv.AttemptOf(as), Image: as.Image, Env: []string{"A=b", "BERTH_CREDENTIAL=/elsewhere"}}
				if err := a.placeCredential(l, as); err != nil {
					t.Fatal(err)
				}
				var mounts []launch.Mount
				if c.want && c.image != "" {
					mounts = []launch.Mount{{Source: path, Target: path, ReadOnly: true, Own: true}}
				}
				if d := cmp.Diff(mounts, l.Mounts); d != "" || slices.Contains(l.Env, "BERTH_CREDENTIAL="+path) != c.want {
					t.Errorf("environment %q, mounts %s", l.Env, d)
				}
				st, err := os.Stat(path)
				if (err == nil) != c.want || err == nil && st.Mode() != 0o400 {
					t.Errorf("%v, %v", st, err)
				}
			}
			if data, err := os.ReadFile(path); c.want && (err != nil || string(data) != "secret\n") {
				t.Errorf("%q, %v", data, err)
			}
			if err := a.Remove(conv.AttemptOf(as)); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(a.cfg.Scripts); err == nil && len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}
