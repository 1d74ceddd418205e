package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/agent/gpu"
	"github.com/berth-scheduler/berth/agent/gpu/owner"
	"github.com/berth-scheduler/berth/agent/gpu/sim"
	"github.com/berth-scheduler/berth/e2e/slurmsite"
)

// slurm is a Slurm of one node with two of its four cards, as a site has it
// that moves card by card.
type slurm struct {
	t   *testing.T
	dir string
	env []string
}

const slurmConf = `ClusterName=beside
SlurmctldHost=%[1]s(%[5]s)
SlurmctldPort=%[2]s
SlurmdPort=%[3]s
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[4]s/munge.socket
CredType=cred/munge
StateSaveLocation=%[4]s/state
SlurmdSpoolDir=%[4]s/spool
SlurmctldPidFile=%[4]s/slurmctld.pid
SlurmdPidFile=%[4]s/slurmd.pid
SlurmctldLogFile=%[4]s/slurmctld.log
SlurmdLogFile=%[4]s/slurmd.log
SlurmdParameters=config_overrides
DebugFlags=NO_CONF_HASH
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
PropagateResourceLimits=NONE
MailProg=/bin/true
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=defer,batch_sched_delay=1,sched_min_interval=50000,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
KillWait=1
NodeName=n1 NodeAddr=%[5]s NodeHostname=%[1]s Port=%[3]s CPUs=2 RealMemory=2000 Gres=gpu:t4:2 State=UNKNOWN
PartitionName=gpu Nodes=n1 Default=YES MaxTime=60 State=UP
`

// startSlurm starts munged, slurmctld and slurmd of Debian's packages with
// everything in a directory of their own. The test is skipped without them.
func startSlurm(t *testing.T) *slurm {
	t.Helper()
	for _, prog := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue"} {
		if _, err := exec.LookPath(prog); err != nil {
			t.Skipf("%s is not installed (Debian: slurm-wlm)", prog)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to run slurmd")
	}
	dir, err := os.MkdirTemp("", "be2e-slurm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	host, at := slurmsite.Host(t)
	s := &slurm{t: t, dir: dir, env: append(os.Environ(), "SLURM_CONF="+filepath.Join(dir, "slurm.conf"))}
	for _, d := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	gres := ""
	for i := range 2 {
		dev := filepath.Join(dir, fmt.Sprintf("gpu%d", i))
		if err := syscall.Mknod(dev, syscall.S_IFCHR|0o666, 1<<8|3); err != nil { // a null device stands for the card
			t.Skipf("cannot make a device file: %v", err)
		}
		gres += "Name=gpu Type=t4 File=" + dev + "\n"
	}
	write(t, filepath.Join(dir, "gres.conf"), gres)
	write(t, filepath.Join(dir, "slurm.conf"), fmt.Sprintf(slurmConf, host, slurmsite.Port(t), slurmsite.Port(t), dir, at))
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 8)), 0o400); err != nil {
		t.Fatal(err)
	}
	s.spawn("munged", "--foreground", "--force", "--key-file="+key, "--socket="+dir+"/munge.socket", "--pid-file="+dir+"/munged.pid",
		"--log-file="+dir+"/munged.log", "--seed-file="+dir+"/seed")
	s.eventually("munged's socket", func() bool { _, err := os.Stat(dir + "/munge.socket"); return err == nil })
	s.spawn("slurmctld", "-D", "-f", dir+"/slurm.conf")
	s.eventually("slurmctld", func() bool { out, _ := s.try("scontrol", "ping"); return strings.Contains(out, "UP") })
	s.spawn("slurmd", "-D", "-N", "n1", "-f", dir+"/slurm.conf")
	s.eventually("an idle node", func() bool { out, _ := s.try("sinfo", "-h", "-o", "%t"); return strings.TrimSpace(out) == "idle" })
	return s
}

// spawn starts a daemon that ends with the test.
func (s *slurm) spawn(name string, args ...string) {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	out, err := os.Create(filepath.Join(s.dir, name+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	cmd.Env, cmd.Stdout, cmd.Stderr = s.env, out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if s.t.Failed() {
			for _, f := range []string{name + ".out", name + ".log"} {
				data, _ := os.ReadFile(filepath.Join(s.dir, f))
				s.t.Logf("--- %s\n%.4000s", f, data)
			}
		}
	})
}

func (s *slurm) try(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *slurm) run(name string, args ...string) string {
	s.t.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(out)
}

func (s *slurm) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("Slurm: not within ten minutes: %s", what)
		}
	}
}

// TestBesideSlurm: an agent that offers two of a node's four cards works
// beside a slurmd that has the others. Neither gives out what the other has,
// and a process of a Slurm job on a card of Berth's is one that nobody started
// here.
func TestBesideSlurm(t *testing.T) {
	s := startSlurm(t)
	c := startClusterWith(t, []string{"BERTH_GPUS_ONLY=2-3", "BERTH_NODE_CPUS=1", "BERTH_NODE_MEMORY_MIB=1000"}, "--nodes", "1x4xT4")
	if out := c.run("gpu", "list", "-o", "name"); strings.Count(out, "\n") != 2 {
		t.Fatalf("offered:\n%s", out)
	}
	if out := c.run("node", "list", "-o", "json"); !strings.Contains(out, `"cpu_milli": 1000`) || !strings.Contains(out, `"mem_mib": 1000`) {
		t.Errorf("cores and memory of Slurm's are offered too:\n%s", out)
	}
	// All that each has, at once.
	theirs := s.run("sbatch", "--parsable", "-G2", "--mem=500", "-o", s.dir+"/slurm.out", "--wrap",
		"echo cards $CUDA_VISIBLE_DEVICES; echo $$ >"+s.dir+"/pid; sleep 300")
	ours := c.submit("--gpus", "2", "--mem", "200M", "--", "sh", "-c", "echo cards $CUDA_VISIBLE_DEVICES; sleep 300")
	j := c.await(ours, "RUNNING")
	s.eventually("a running job", func() bool { return s.run("squeue", "-h", "-j", theirs, "-o", "%t") == "R" })
	for _, g := range j.GPUs {
		if g.UUID != sim.UUID("n1", 2) && g.UUID != sim.UUID("n1", 3) {
			t.Errorf("a job has card %s, which is Slurm's", g.UUID)
		}
	}
	// A third GPU is nobody's to give.
	if out, err := s.try("sbatch", "-G3", "--wrap", "true"); err == nil {
		t.Errorf("Slurm takes a job of 3 cards: %s", out)
	}
	if r := c.runAs(0, "submit", "--gpus", "3", "--", "true"); r.code == 0 {
		t.Errorf("Berth takes a job of 3 cards: %s", r.stdout)
	}
	s.eventually("the job's process", func() bool { data, _ := os.ReadFile(s.dir + "/pid"); return strings.HasSuffix(string(data), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, s.dir+"/pid")))
	if err != nil {
		t.Fatal(err)
	}
	find := owner.New(owner.Config{Parent: "/berth", User: func(uint32) string { return "somebody" }})
	s.eventually("the name of a stray", func() bool {
		usage := []gpu.Usage{{UUID: "GPU-2", UsedMiB: 500, Processes: []gpu.Process{{PID: pid, MemMiB: 500}}}}
		find.Mark()(usage)
		strays, mib := usage[0].Strays()
		if len(strays) != 1 || mib != 500 {
			t.Fatalf("Slurm's process on a card of Berth's is taken for %+v", usage[0].Processes)
		}
		return strays[0].User == "somebody" // names are looked up aside
	})
	// Each ends its own, and the way back is to stop the agent.
	s.run("scancel", theirs)
	c.run("cancel", fmt.Sprint(ours))
	c.await(ours, "CANCELLED")
	s.eventually("the end of Slurm's job", func() bool { return s.run("squeue", "-h") == "" })
}
