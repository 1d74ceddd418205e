package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const busyboxImage = "berth.test/busybox:static"

// needBusybox skips where there is nothing to make an image of.
func needBusybox(t *testing.T) {
	t.Helper()
	needContainerd(t)
	if _, err := os.Stat("/bin/busybox"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("busybox-static is not installed; on Debian: apt-get install busybox-static")
		}
		t.Skip("busybox-static is not installed; on Debian: apt-get install busybox-static")
	}
}

// output waits for a job's output to hold a line, and returns it.
func (c *cluster) output(dir string, id uint64, line string) string {
	c.t.Helper()
	var data []byte
	c.eventually(fmt.Sprintf("%q in the output of job %d", line, id), func() bool {
		data, _ = os.ReadFile(filepath.Join(dir, fmt.Sprintf("berth-%d.out", id)))
		return strings.Contains("\n"+string(data), "\n"+line+"\n")
	})
	return string(data)
}

// TestJobsChooseWhatTheyRunIn: mounts with the user's own rights, a root that
// cannot be written to, sizes, and no network, each seen from inside.
func TestJobsChooseWhatTheyRunIn(t *testing.T) {
	t.Parallel()
	needBusybox(t)
	data := openDir(t)
	c := startClusterWith(t, []string{"BERTH_CONTAINERS_MOUNTS=" + data, "BERTH_CONTAINERS_CLUSTER=true"}, "--runtime", "containerd", "--nodes", "cpu", "--busybox")
	dir := openDir(t)
	secret, sub := filepath.Join(data, "secret"), filepath.Join(data, "sub")
	if err := errors.Join(os.WriteFile(secret, []byte("bob's"), 0o600), os.Chown(secret, bob, bob), os.Mkdir(sub, 0o777), os.Chmod(sub, 0o777)); err != nil {
		t.Fatal(err)
	}
	const script = `echo hello > /data/mine && echo wrote
{ echo x > /ro/x; } 2>/dev/null || echo ro
{ echo x > /x; } 2>/dev/null || echo root-ro
cat /data/secret 2>/dev/null || echo closed
df -m /tmp | awk 'END{print "tmp", $2}'
df -m /dev/shm | awk 'END{print "shm", $2}'
sed -n 's/^ *\([^:]*\):.*/if \1/p' /proc/net/dev
echo done`
	r := c.runAs(alice, "submit", "--parsable", "-D", dir, "--image", busyboxImage, "--mount", data+":/data", "--mount", sub+":/ro:ro",
		"--read-only", "--tmp", "8M", "--shm", "16M", "--net", "none", "--mem", "64M", "--", "sh", "-c", script)
	if r.code != 0 {
		t.Fatalf("submit: %d %s", r.code, r.stderr)
	}
	id := parseID(t, r.stdout)
	c.await(id, "COMPLETED", "FAILED")
	out := c.output(dir, id, "done")
	if want := "wrote\nro\nroot-ro\nclosed\ntmp 8\nshm 16\nif lo\ndone\n"; out != want {
		t.Errorf("inside it is\n%s, want\n%s", out, want)
	}
	if st, err := os.Stat(filepath.Join(data, "mine")); err != nil || ownerOf(st) != alice {
		t.Errorf("what the job wrote: %v, %v", st, err)
	}
	shown := c.run("show", fmt.Sprint(id))
	for _, want := range []string{"Mounts", data + ":/data, " + sub + ":/ro:ro", "network none, read-only, /tmp of 8 MiB, /dev/shm of 16 MiB"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}
	stepsInAnImage(c, dir)
}

// imageScript has steps, and asks the cluster, in an image that knows neither.
const imageScript = `#!/bin/sh
#BERTH --image=` + busyboxImage + `
#SBATCH -n2 --output=berth-%j.out
echo from a script
srun -l sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS in $SLURM_JOB_ID.$SLURM_STEP_ID on $SLURMD_NODENAME'
srun -n1 sh -c 'exit 3'; echo rc $?
until squeue -h -o %T | grep -q RUNNING; do sleep 0.1; done # the cluster may not have heard it yet
squeue -h -o 'it is %T'
ls -ln $BERTH_CREDENTIAL | cut -c1-10
sbatch --parsable -Q -o /dev/null --wrap 'exit 5' >/tmp/asked && echo asked as the user
env -u BERTH_CREDENTIAL sbatch --parsable -Q -o /dev/null --wrap 'exit 5' || echo refused without
echo $SLURM_JOB_NUM_NODES $SLURM_NTASKS $SLURM_JOB_PARTITION
while [ ! -e /tmp/go ]; do sleep 0.1; done
echo went
`

// stepsInAnImage: srun, squeue, exec, tunnels and sessions in jobs that have a
// root of their own.
func stepsInAnImage(c *cluster, dir string) {
	t := c.t
	t.Helper()
	script := filepath.Join(dir, "job.sh")
	if err := os.WriteFile(script, []byte(imageScript), 0o755); err != nil {
		t.Fatal(err)
	}
	id := parseID(t, c.runAs(alice, "submit", "--parsable", "-Q", "-D", dir, script).stdout)
	out := c.output(dir, id, "1 2 all")
	for _, want := range []string{"from a script", fmt.Sprintf("0: 0 of 2 in %d.0 on n1", id), fmt.Sprintf("1: 1 of 2 in %d.0 on n1", id), "rc 3", "it is RUNNING", "-r--------", "asked as the user", "refused without"} {
		if !strings.Contains("\n"+out, "\n"+want+"\n") {
			t.Errorf("no line %q in\n%s", want, out)
		}
	}
	job := fmt.Sprint(id)
	if r := c.runAs(alice, "exec", "-n", job, "--", "sh", "-c", "echo $SLURM_JOB_ID; srun -n1 echo a step"); r.stdout != job+"\na step\n" || r.code != 0 {
		t.Errorf("exec: %+v", r)
	}
	_ = c.runAs(alice, "exec", "-n", job, "--", "touch", "/tmp/go") // its own end may come after the job's
	c.await(id, "COMPLETED", "FAILED")
	c.output(dir, id, "went")
	r := c.runAs(alice, "run", "--image", busyboxImage, "-D", dir, "--", "sh", "-c", "echo $SLURM_STEP_ID; ls /.berth/bin/srun; exit 4")
	if r.code != 4 || r.stdout != "0\n/.berth/bin/srun\n" {
		t.Errorf("a session in an image: %+v", r)
	}
}

// TestWhatIsNotAllowedIsRefused says what is, and where that stands.
func TestWhatIsNotAllowedIsRefused(t *testing.T) {
	t.Parallel()
	needBusybox(t)
	data, outside := openDir(t), openDir(t)
	c := startClusterWith(t, []string{"BERTH_CONTAINERS_MOUNTS=" + data, "BERTH_CONTAINERS_NETWORK=none"},
		"--runtime", "containerd", "--nodes", "cpu", "--busybox")
	dir := openDir(t)
	closed, link := filepath.Join(data, "closed"), filepath.Join(data, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(closed, "in"), 0o700), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"MOUNT: source " + outside + ": this node mounts only what lies below " + data + " (containers.mounts in its agent.yaml)": {"--mount", outside + ":/x"},
		"is a symbolic link, which is not followed":                     {"--mount", link + ":/x"},
		"no such file or directory":                                     {"--mount", data + "/missing:/x"},
		"permission denied":                                             {"--mount", closed + "/in:/x"},
		"target /etc/hosts would hide":                                  {"--mount", data + ":/etc/hosts"},
		"NETWORK: host is not allowed on this node":                     {"--net", "host"},
		"SIZE: /tmp of 4096 MiB: this node gives the job 1 to 2048 MiB": {"--tmp", "4G"},
	} {
		args = append([]string{"submit", "--parsable", "-D", dir, "--image", busyboxImage}, args...)
		r := c.runAs(alice, append(args, "--", "true")...)
		if r.code != 0 {
			t.Errorf("%q: submit: %s", args, r.stderr)
			continue
		}
		id := parseID(t, r.stdout)
		c.await(id, "FAILED", "COMPLETED")
		if shown := c.run("show", fmt.Sprint(id)); !strings.Contains(strings.Join(strings.Fields(shown), " "), want) {
			t.Errorf("%q: want %q in\n%s", args, want, shown)
		}
	}
}

func ownerOf(st os.FileInfo) uint32 { return st.Sys().(*syscall.Stat_t).Uid }
