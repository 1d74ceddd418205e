// Command topshot takes the picture of berth top: it starts berth dev with simulated GPUs and
// the jobs of a few users, runs berth top in a terminal of its own, and writes its screen as
// SVG.
//
//	make build && go run ./deploy/topshot -out docs/top.svg
//
// As root the jobs belong to four users, who exist only for this program and what it starts;
// otherwise all belong to the caller.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The size of the terminal.
const (
	columns = 110
	rows    = 26
)

// options are the command-line options.
type options struct {
	bin, out string
	watch    time.Duration
	inside   bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "the `folder` of Berth's programs")
	flag.StringVar(&o.out, "out", "docs/top.svg", "the `file` for the picture")
	flag.DurationVar(&o.watch, "watch", 4*time.Minute, "how long the screen is up before the picture is taken; its curves begin with it")
	flag.BoolVar(&o.inside, "inside", false, "take the picture of the cluster that is already there; what this program calls itself with")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "topshot:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	berth := filepath.Join(bin, "berth")
	if !o.inside {
		return cluster(berth, o)
	}
	if err := submit(berth); err != nil {
		return err
	}
	picture, err := shoot(berth, o.watch)
	if err != nil {
		return err
	}
	return os.WriteFile(o.out, picture, 0o644) // #nosec G306 -- a picture for all
}

// cluster starts a cluster, and this program again next to it. The cluster ends with it.
func cluster(berth string, o options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(berth, "dev", "--nodes", nodes, "--", self, "-inside", "-bin", o.bin, "-out", o.out, "-watch", o.watch.String())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if os.Getuid() != 0 {
		return cmd.Run()
	}
	dir, err := os.MkdirTemp("", "topshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	names, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	for i, name := range people {
		names = fmt.Appendf(names, "%s:x:%d:%d::/:/bin/sh\n", name, firstUID+i, firstUID+i)
	}
	file := filepath.Join(dir, "passwd")
	if err := os.WriteFile(file, names, 0o644); err != nil { // #nosec G306 -- as /etc/passwd is
		return err
	}
	// Their names come from this file, mounted over the machine's in a namespace of its own.
	cmd.Args = append([]string{"sh", "-c", `mount --bind "$0" /etc/passwd && exec "$@"`, file}, cmd.Args...)
	if cmd.Path, err = exec.LookPath("sh"); err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	return cmd.Run()
}

// as makes a command run as a user, where this program may.
func as(cmd *exec.Cmd, person string) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	for i, name := range people {
		if name == person && os.Getuid() == 0 {
			id := uint32(firstUID + i)
			cmd.SysProcAttr.Credential = &syscall.Credential{Uid: id, Gid: id}
			cmd.Env = append(os.Environ(), "USER="+name, "HOME=/")
		}
	}
	cmd.Dir = "/"
	return cmd
}

// submit submits all jobs in order.
func submit(berth string) error {
	for _, j := range jobs {
		args := append([]string{"submit", "--name", j.name, "--output", os.DevNull}, strings.Fields(j.asks)...)
		args = append(append(args, "--", berth, "sim-job"), strings.Fields(j.does)...)
		if out, err := as(exec.Command(berth, args...), j.owner).CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("submit %s: %w", j.name, err), errors.New(string(out)))
		}
	}
	return nil
}
