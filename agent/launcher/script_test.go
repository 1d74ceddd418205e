package launcher

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-scheduler/berth/agent/launch"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

func TestInterpreter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]string{
		"#!/bin/sh\n": {"/bin/sh"}, "#! /bin/bash -l\necho": {"/bin/bash", "-l"}, "#!/usr/bin/env -S python3 -u\n": {"/usr/bin/env", "-S python3 -u"},
		"#!/bin/sh": {"/bin/sh"}, "#!/bin/sh \t \n": {"/bin/sh"}, "": nil, "#!\n": nil, "#!   \n": nil, "echo\n": nil, "#!/bin/\x00sh\n": nil,
	} {
		got, err := interpreter([]byte(in))
		if d := cmp.Diff(want, got); d != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v %s", in, err, d)
		}
	}
}

func TestPlaceScript(t *testing.T) {
	t.Parallel()
	text := []byte("#!/bin/sh -e\nexit 0\n")
	packed, err := plainconv.PackScript(text)
	if err != nil {
		t.Fatal(err)
	}
	as := &nodev1.Assignment{Job: 7, Attempt: 2, Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), Script: packed, Image: "lab/torch"}
	a := &Launcher{cfg: Config{Scripts: filepath.Join(t.TempDir(), "scripts")}}
	for range 2 { // what a crash left is replaced
		l := &launch.Launch{ID: conv.AttemptOf(as), UID: as.Uid, GID: as.Gid, Image: as.Image, Args: []string{"/home/ann/train.sh", "--epochs", "3"}}
		if err := a.placeScript(l, as); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(a.scriptDir(conv.AttemptOf(as)), "slurm_script")
		if d := cmp.Diff([]string{"/bin/sh", "-e", path, "--epochs", "3"}, l.Args); d != "" {
			t.Error(d)
		}
		steps := filepath.Join(filepath.Dir(path), "steps")
		if d := cmp.Diff([]launch.Mount{{Source: filepath.Dir(path), Target: filepath.Dir(path), ReadOnly: true, Own: true}, {Source: steps, Target: steps, Own: true}}, l.Mounts); d != "" {
			t.Error(d)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, text) {
			t.Errorf("%q, %v", got, err)
		}
		for file, want := range map[string]os.FileMode{path: 0o500, filepath.Dir(path): 0o711 | os.ModeDir, a.cfg.Scripts: 0o711 | os.ModeDir} {
			if st, err := os.Lstat(file); err != nil || st.Mode() != want {
				t.Errorf("%s: %v, %v; want %v", file, st.Mode(), err, want)
			}
		}
	}
	for range 2 {
		if err := a.Remove(conv.AttemptOf(as)); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(a.cfg.Scripts); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestPlaceScriptRefuses(t *testing.T) {
	t.Parallel()
	noShebang, err := plainconv.PackScript([]byte("echo\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir    string
		script []byte
		code   int
	}{
		"no directory":   {"", noShebang, 125},
		"not packed":     {t.TempDir(), []byte("#!/bin/sh\n"), 125},
		"no interpreter": {t.TempDir(), noShebang, 126},
	} {
		err := (&Launcher{cfg: Config{Scripts: c.dir}}).placeScript(&launch.Launch{}, &nodev1.Assignment{Job: 1, Attempt: 1, Script: c.script})
		var le *launch.Error
		if !errors.As(err, &le) || le.Code != c.code || le.Reason != "SCRIPT" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSlurmEnv(t *testing.T) {
	t.Parallel()
	a := &Launcher{cfg: Config{Node: "n1"}}
	as := &nodev1.Assignment{Job: 7, Attempt: 3, Uid: 1000, Gid: 100, User: "ann", Name: "train", CpuMilli: 2500, MemMib: 512,
		Gpus: []*nodev1.Share{{Uuid: "GPU-a"}, {Uuid: "GPU-b"}}}
	want := []string{
		"SLURM_JOB_ID=7", "SLURM_JOBID=7", "SLURM_JOB_NAME=train", "SLURM_JOB_USER=ann", "SLURM_JOB_UID=1000", "SLURM_JOB_GID=100",
		"SLURM_JOB_NODELIST=n1", "SLURM_NODELIST=n1", "SLURMD_NODENAME=n1", "SLURM_NODE_ALIASES=(null)", "SLURM_JOB_NUM_NODES=1", "SLURM_NNODES=1",
		"SLURM_CPUS_ON_NODE=3", "SLURM_JOB_CPUS_PER_NODE=3", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_GTIDS=0", "SLURM_TOPOLOGY_ADDR=n1", "SLURM_TOPOLOGY_ADDR_PATTERN=node", "SLURM_PRIO_PROCESS=0",
		"ENVIRONMENT=BATCH", "HOSTNAME=n1", "SLURM_JOB_PARTITION=all", "SLURM_RESTART_COUNT=2", "SLURM_MEM_PER_NODE=512", "SLURM_GPUS_ON_NODE=2", "SLURM_JOB_GPUS=0,1",
	}
	if d := cmp.Diff(want, a.slurmEnv(as)); d != "" {
		t.Error(d)
	}
	plain := a.slurmEnv(&nodev1.Assignment{Job: 7, Attempt: 1})
	for _, line := range plain {
		if line == "SLURM_RESTART_COUNT=0" || line == "SLURM_GPUS_ON_NODE=0" || line == "SLURM_MEM_PER_NODE=0" {
			t.Error(line)
		}
	}
}

// TestImageTools gives jobs in images the commands, and the way to the cluster
// only where the node says so.
func TestImageTools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, image string
		cluster     bool
		want        launch.Launch
	}{
		{"on the node's own files", "", true, launch.Launch{}},
		{"in an image", "lab/torch", false, launch.Launch{Image: "lab/torch", Commands: []string{"srun"}}},
		{"that may reach the cluster", "lab/torch", true, launch.Launch{Image: "lab/torch", Commands: []string{"srun"},
			Env: []string{"BERTH_SOCKET=/s/cluster/berth.sock"}, Mounts: []launch.Mount{{Source: "/s/cluster", Target: "/s/cluster", ReadOnly: true, Own: true}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &Launcher{cfg: Config{Scripts: "/s", Tools: Tools{Exe: "/usr/bin/berth", Names: []string{"srun"}, Socket: "/s/cluster/berth.sock", ImagesToo: c.cluster}}}
			l := launch.Launch{Image: c.image}
			a.imageTools(&l)
			if d := cmp.Diff(c.want, l); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestScriptsAreMadeAgain: whatever cleans up or narrows the directory of scripts, the next
// attempt's is there.
func TestScriptsAreMadeAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "scripts")
	la := &Launcher{cfg: Config{Scripts: dir}}
	for _, name := range []string{"1.1", "1.2", "1.2"} {
		own := filepath.Join(dir, name)
		if err := la.makeScriptDir(own); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{dir, own} {
			if info, err := os.Stat(d); err != nil || info.Mode() != 0o711|os.ModeDir {
				t.Errorf("%s: %v, %v", d, info.Mode(), err)
			}
		}
		if name == "1.1" {
			if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Chmod(own, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := la.makeScriptDir(filepath.Join(dir, "x", "y")); err == nil {
		t.Error("a directory of another depth was made")
	}
}
