package launcher

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/berth-scheduler/berth/agent/gpu/caps"
	"github.com/berth-scheduler/berth/agent/hold"
	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/cluster"
	nodev1 "github.com/berth-scheduler/berth/proto/berth/node/v1"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

type accounts struct{}

func (accounts) Resolve(uid, gid uint32, name string) (User, error) {
	if name == "ghost" {
		return User{}, errors.New("no such account here")
	}
	return User{Name: name, Home: "/home/" + name, Shell: "/bin/zsh", Groups: []uint32{gid, 44}}, nil
}

// TestLaunches: all that a runtime is given to run, and the files that a job finds, for
// each kind of job. The golden file holds every line of it.
func TestLaunches(t *testing.T) {
	t.Parallel()
	scripts := filepath.Join(t.TempDir(), "scripts")
	la, err := New(Config{
		Node: "n2", Scripts: scripts, Users: accounts{}, Env: []string{"SITE=lab", "PATH=/opt/site/bin:/usr/bin"}, Grace: 30 * time.Second,
		Frameworks: caps.EnvConfig{PyTorchFraction: true},
		Tools:      Tools{Exe: "/usr/bin/berth", Names: []string{"sbatch", "srun"}, Socket: "/run/berth/job/sock", ImagesToo: true},
		Networks:   Networks{Default: cluster.NetHost, Allowed: []cluster.Network{cluster.NetHost, cluster.NetNone}},
	})
	if err != nil {
		t.Fatal(err)
	}
	pack := func(text string) []byte {
		b, err := plainconv.PackScript([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	base := func(change func(as *nodev1.Assignment)) *nodev1.Assignment {
		as := &nodev1.Assignment{
			Job: 7, Attempt: 1, Token: 70, Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid()), User: "ada", Name: "train", Partition: "long",
			Command: [][]byte{[]byte("python"), []byte("train.py")}, Env: [][]byte{[]byte("A=1"), []byte("NVIDIA_VISIBLE_DEVICES=all"), []byte("CUDA_MPS_PIPE_DIRECTORY=/tmp/x"), []byte("USER=eve")},
			Dir: []byte("/home/ada/run"), CpuMilli: 2500, MemMib: 512, WeighCores: true,
		}
		if change != nil {
			change(as)
		}
		return as
	}
	var b strings.Builder
	for _, c := range []struct {
		name  string
		cards *Cards
		as    *nodev1.Assignment
	}{
		{"a command", &Cards{}, base(nil)},
		{"its second attempt, from nowhere", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Attempt, as.Dir, as.Stdout, as.Stderr, as.Stdin, as.Truncate = 3, nil, []byte("out/%x-%j.%u"), []byte("/var/err-%N"), []byte("in.txt"), true
		})},
		{"a share of a card", &Cards{Env: []string{"CUDA_VISIBLE_DEVICES=0"}, Caps: []string{"CUDA_MPS_PIPE_DIRECTORY=/run/mps"}, Devices: []string{"nvidia.com/gpu=GPU-a"}, ShareMiB: 4000, TotalMiB: 16000},
			base(func(as *nodev1.Assignment) {
				as.Gpus, as.Env, as.Stdin = []*nodev1.Share{{Uuid: "GPU-a", MemMib: 4000, Milli: 250}}, append(as.Env, []byte("SITE=mine")), []byte("/dev/null")
			})},
		{"a batch script of an array", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Script, as.Command = pack("#!/bin/bash -eu\ntrue\n"), [][]byte{[]byte("job.sh"), []byte("one")}
			as.Array, as.Credential = &nodev1.ArrayTask{Job: 5, Task: 3, Count: 4, Min: 1, Max: 7, Step: 2}, "secret"
		})},
		{"the first node of a batch job on two", &Cards{Env: []string{"CUDA_VISIBLE_DEVICES=0,1"}}, base(func(as *nodev1.Assignment) {
			as.Script, as.Gpus = pack("#!/bin/sh\n"), []*nodev1.Share{{Uuid: "GPU-a", Exclusive: true}, {Uuid: "GPU-b", Exclusive: true}}
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n2", "n3"}, Tasks: 1, MasterAddr: "10.0.0.2", MasterPort: 20001}
		})},
		{"the second node of it", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Script = pack("#!/bin/sh\n")
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, NodeRank: 1, Tasks: 1, MasterAddr: "10.0.0.1", MasterPort: 20001}
		})},
		{"three ranks on each of two nodes", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, NodeRank: 1, Tasks: 3, MasterAddr: "10.0.0.1", MasterPort: 20002}
			as.Stdout, as.Stderr, as.Grace = []byte("rank-%t.out"), []byte("all.err"), durationpb.New(9*time.Second)
		})},
		{"a batch script of three ranks on each of two nodes", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Script = pack("#!/bin/sh\n")
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, NodeRank: 1, Tasks: 3, MasterAddr: "10.0.0.1", MasterPort: 20004}
		})},
		{"one rank on each of two nodes", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Ranks = &nodev1.Ranks{Nodes: []string{"n1", "n2"}, NodeRank: 1, Tasks: 1, MasterAddr: "10.0.0.1", MasterPort: 20003}
		})},
		{"an image", &Cards{Mounts: []launch.Mount{{Source: "/run/cards", Target: "/run/cards", Own: true}}}, base(func(as *nodev1.Assignment) {
			as.Image, as.Credential, as.Env = "site/torch:2", "secret", append(as.Env, []byte("TMPDIR=/scratch/ada"))
			as.Container = &nodev1.Container{Network: "none", ReadOnly: true, TmpMib: 100, ShmMib: 64, Mounts: []*nodev1.Mount{{Source: []byte("/data"), Target: []byte("/data"), ReadOnly: true}}}
		})},
		{"a batch script in an image", &Cards{}, base(func(as *nodev1.Assignment) {
			as.Image, as.Script, as.Credential = "site/torch:2", pack("#!/usr/bin/env python\n"), "secret"
			as.Env, as.Container = append(as.Env, []byte("TMPDIR=/scratch/ada")), &nodev1.Container{Mounts: []*nodev1.Mount{{Source: []byte("/scratch"), Target: []byte("/scratch")}}}
		})},
		{"a session", &Cards{}, base(func(as *nodev1.Assignment) { as.Script = pack(hold.Session{Kept: true}.Text()) })},
	} {
		user, err := la.User(c.as)
		if err != nil {
			t.Fatal(err)
		}
		l, err := la.Launch(c.as, user, c.cards)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if l.UID != c.as.Uid || l.GID != c.as.Gid || !slices.Equal(l.Groups, []uint32{c.as.Gid, 44}) {
			t.Errorf("%s: runs as %d:%d %v", c.name, l.UID, l.GID, l.Groups)
		}
		fmt.Fprintf(&b, "== %s\n%s", c.name, written(l))
		b.WriteString(files(t, la.scriptDir(l.ID)))
		if err := la.Remove(l.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(la.scriptDir(l.ID)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: its files stay: %v", c.name, err)
		}
		b.WriteByte('\n')
	}
	got := strings.ReplaceAll(b.String(), scripts, "SCRIPTS")
	golden := filepath.Join("testdata", "launches.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(want), "\n") {
		lines := strings.Split(got, "\n")
		if i >= len(lines) || lines[i] != line {
			t.Fatalf("%s, line %d: want\n%s\ngot\n%s", golden, i+1, line, strings.Join(lines[min(i, len(lines)):min(i+3, len(lines))], "\n"))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d bytes, got %d", golden, len(want), len(got))
	}
}

// written is a launch line by line, its environment sorted, without what differs from
// run to run: who runs the test, and what a session is told from others by.
func written(l *launch.Launch) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s token %d: %q in %s, image %q\n", l.ID, l.Token, l.Args, l.Dir, l.Image)
	fmt.Fprintf(&b, "in %q, out %q, err %q, truncate %t\n", l.Stdin, l.Stdout, l.Stderr, l.Truncate)
	fmt.Fprintf(&b, "%d bytes, %d cores milli, weighed %t; network %q, read-only %t, tmp %d, shm %d\n", l.MemBytes, l.CPUMilli, l.WeighCores, l.Network, l.ReadOnlyRoot, l.TmpBytes, l.ShmBytes)
	fmt.Fprintf(&b, "devices %q, commands %q\n", l.CDIDevices, l.Commands)
	for _, m := range l.Mounts {
		fmt.Fprintf(&b, "mount %s at %s, read-only %t, own %t\n", m.Source, m.Target, m.ReadOnly, m.Own)
	}
	if r := l.Ranks; r != nil {
		fmt.Fprintf(&b, "%d ranks from %d, grace %s, out %q, err %q, slurm %t, hold %t\n", r.Tasks, r.First, r.Grace, r.Stdout, r.Stderr, r.Slurm, r.Hold != nil)
	}
	env := slices.Clone(l.Env)
	slices.Sort(env)
	for _, line := range env {
		switch name, value, _ := strings.Cut(line, "="); name {
		case "SLURM_JOB_UID", "SLURM_JOB_GID":
			line = fmt.Sprintf("%s=%s", name, map[string]string{fmt.Sprint(l.UID): "its own", fmt.Sprint(l.GID): "its own"}[value])
		case hold.Variable:
			line = name + "=" + strings.TrimRight(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
		}
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// files are those of an attempt, with their modes and what is in them.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "file %s %s", name, info.Mode())
		if !d.IsDir() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", data)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLaunchesThatAreRefused say why.
func TestLaunchesThatAreRefused(t *testing.T) {
	t.Parallel()
	la, err := New(Config{Node: "n2", Users: accounts{}, Networks: Networks{Default: cluster.NetNone}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := la.User(&nodev1.Assignment{User: "ghost"}); err == nil || !strings.Contains(err.Error(), "no such account") {
		t.Errorf("a user that is not there: %v", err)
	}
	if _, err := la.Outline(&nodev1.Assignment{User: "ghost"}); err == nil {
		t.Error("of a user that is not there there is an outline")
	}
	for name, c := range map[string]struct {
		as   *nodev1.Assignment
		code int
		want string
	}{
		"a script where none are kept": {&nodev1.Assignment{Job: 1, Attempt: 1, User: "ada", Script: []byte("x")}, 125, "keeps no batch scripts"},
		"a network that is not given":  {&nodev1.Assignment{Job: 1, Attempt: 1, User: "ada", Container: &nodev1.Container{Network: "host"}}, 125, "host is not allowed on this node, which gives its jobs none"},
	} {
		_, err := la.Launch(c.as, User{Name: "ada"}, &Cards{})
		le, ok := errors.AsType[*launch.Error](err)
		if !ok || le.Code != c.code || le.Node || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o, err := la.Outline(&nodev1.Assignment{Job: 4, Attempt: 2, Token: 9, User: "ada", Uid: 5, Gid: 6, Image: "i", Stderr: []byte("e-%j")})
	if err != nil || o.Dir != "/home/ada" || o.Stdout != "/home/ada/berth-4.out" || o.Stderr != "/home/ada/e-4" || o.UID != 5 || o.GID != 6 || o.Token != 9 || o.Image != "i" || len(o.Env) != 0 {
		t.Errorf("an outline: %+v, %v", o, err)
	}
}
