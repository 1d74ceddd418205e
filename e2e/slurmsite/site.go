// Package slurmsite runs a throw-away Slurm for tests and benchmarks that compare Berth with
// it: munged, slurmctld and slurmd from the distribution's packages, on loopback, with their
// state in a directory of the test.
package slurmsite

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/coordtest"
)

// Options of a site; the zero value has one node with four cores.
type Options struct {
	// CPUs is how many cores the node offers, 4 by default; Slurm lets more jobs run than the
	// machine has cores.
	CPUs int
	// GPUs is the number of the node's GPUs: device nodes that are /dev/null, with type "fake".
	GPUs int
	// Params is SchedulerParameters, by default those of Slurm's guide for high throughput.
	Params string
	// More are further lines of slurm.conf.
	More string
}

// Site is a running Slurm. Its processes end with the test.
type Site struct {
	t   testing.TB
	dir string
}

// highThroughput is the recommendation of Slurm's guide for high-throughput computing.
const highThroughput = "defer,batch_sched_delay=1,sched_min_interval=50000,sched_interval=5,default_queue_depth=500," +
	"bf_interval=30,bf_max_job_test=500,bf_continue,max_rpc_cnt=150"

// Start runs a site and waits until its node is idle. Without Slurm's programs, or without
// root, it skips the test with the reason.
func Start(t testing.TB, o Options) *Site {
	t.Helper()
	for _, p := range []string{"munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed: apt-get install slurm-wlm munge", p)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("Slurm's daemons want root here")
	}
	o.CPUs = cmp.Or(o.CPUs, 4)
	o.Params = cmp.Or(o.Params, highThroughput)
	dir, err := os.MkdirTemp("", "slurm") // short, because it contains a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Site{t: t, dir: dir}
	s.write(o)
	s.run("munged", "--foreground", "--force", "--key-file", dir+"/key", "--socket", dir+"/munge.socket",
		"--pid-file", dir+"/munged.pid", "--log-file", dir+"/munged.log", "--seed-file", dir+"/seed")
	s.Wait("munged to listen", func() bool { return listens(dir + "/munge.socket") })
	s.run("slurmctld", "-D", "-f", dir+"/slurm.conf")
	s.Wait("slurmctld to answer", func() bool { return s.says("UP", "scontrol", "ping") })
	s.run("slurmd", "-D", "-N", "n1", "-f", dir+"/slurm.conf")
	s.Wait("the node to be idle", func() bool { return s.says("n1", "sinfo", "-h", "-t", "idle", "-o", "%N") })
	return s
}

// Port returns a TCP port that no other test is given until this one ends.
func Port(t testing.TB) string {
	addr := coordtest.FreeAddr(t)
	return addr[strings.LastIndexByte(addr, ':')+1:]
}

// Host returns the machine's own name and its address, where Slurm's daemons
// listen; a test is skipped if it has none.
func Host(t testing.TB) (name, at string) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ = strings.Cut(host, ".")
	addrs, err := net.DefaultResolver.LookupHost(t.Context(), name)
	if err != nil {
		t.Skipf("slurmctld starts only where the machine's own name has an address: %v", err)
	}
	return name, addrs[0]
}

// Dir returns the directory of its state; it appears in the command lines of its daemons.
func (s *Site) Dir() string { return s.dir }

// Env returns the environment of Slurm's commands.
func (s *Site) Env() []string { return append(os.Environ(), "SLURM_CONF="+s.dir+"/slurm.conf") }

// Output runs one of Slurm's commands and returns its output; a failure ends the test.
func (s *Site) Output(stdin string, argv ...string) string {
	s.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin = s.Env(), strings.NewReader(stdin)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, errs.String())
	}
	return string(out)
}

// Try is Output where a failure is acceptable; the output is then empty.
func (s *Site) Try(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = s.Env()
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	return string(out), nil
}

// says reports whether a command succeeds and prints a word.
func (s *Site) says(word string, argv ...string) bool {
	out, err := s.Try(argv...)
	return err == nil && strings.Contains(out, word)
}

func listens(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// confTemplate takes the host and its address, two ports, the directory, the
// scheduler's parameters, the kinds of generic resources, address and host again,
// cores, GPUs, and the options' additions.
const confTemplate = `ClusterName=throwaway
SlurmctldHost=%s(%s)
SlurmctldPort=%s
SlurmdPort=%s
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[5]s/munge.socket
CredType=cred/munge
StateSaveLocation=%[5]s/state
SlurmdSpoolDir=%[5]s/spool
SlurmctldPidFile=%[5]s/slurmctld.pid
SlurmdPidFile=%[5]s/slurmd.pid
SlurmctldLogFile=%[5]s/slurmctld.log
SlurmdLogFile=%[5]s/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
PropagateResourceLimits=NONE
ReturnToService=2
MailProg=/bin/true
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
PriorityType=priority/basic
MaxJobCount=200000
MaxArraySize=100001
KillWait=2
SchedulerType=sched/backfill
SchedulerParameters=%s
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
%s
NodeName=n1 NodeAddr=%s NodeHostname=%s CPUs=%d RealMemory=4096%s State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
%s
`

// write writes the key, the configuration and the devices.
func (s *Site) write(o Options) {
	s.t.Helper()
	host, at := Host(s.t)
	key := make([]byte, 128)
	rand.Read(key) // never fails, see crypto/rand
	gres, types := "", ""
	if o.GPUs > 0 {
		gres, types = fmt.Sprintf(" Gres=gpu:fake:%d", o.GPUs), "GresTypes=gpu"
		for i := range o.GPUs {
			if err := syscall.Mknod(fmt.Sprintf("%s/gpu%d", s.dir, i), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	conf := fmt.Sprintf(confTemplate, host, at, Port(s.t), Port(s.t), s.dir, o.Params, types, at, host, o.CPUs, gres, o.More)
	for name, text := range map[string]string{
		"key": string(key), "slurm.conf": conf,
		"gres.conf": "AutoDetect=off\n" + strings.Repeat(fmt.Sprintf("NodeName=n1 Name=gpu Type=fake File=%s/gpu[0-%d]\n", s.dir, o.GPUs-1), min(o.GPUs, 1)),
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, d := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
}

// run starts a daemon that ends with the test, together with its children.
func (s *Site) run(argv ...string) {
	s.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	log, err := os.Create(filepath.Join(s.dir, argv[0]+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Env(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it is fine if it has gone already
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
}

// Wait polls until done, since the daemons run in real time; it fails the test after
// ten minutes.
func (s *Site) Wait(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			logs, _ := filepath.Glob(s.dir + "/*.log")
			var text strings.Builder
			for _, l := range logs {
				data, _ := os.ReadFile(l)
				fmt.Fprintf(&text, "== %s\n%s\n", filepath.Base(l), data[max(0, len(data)-2000):])
			}
			s.t.Fatalf("waited ten minutes for %s\n%s", what, text.String())
		}
	}
}
