package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table of clients in docs/slurm.md")

// slurmClient is a program that sites run against Slurm's commands, and what of it
// is tried here.
type slurmClient struct {
	name, version string
	// what it is that was run: its command lines, as its source writes them, or the
	// client itself.
	what string
	// partly is why not all of it works, "" when all does.
	partly string
	// lines are its command lines, and what it must find in the answers.
	lines func(s *clientSite)
	// real runs the client itself, if the line of a shell that is needs succeeds.
	needs string
	real  func(s *clientSite)
}

// clientSite is where clients run: the look-alikes in PATH, a user, and jobs of theirs.
type clientSite struct {
	t   *testing.T
	c   *cluster
	dir string
	bin string
	// ended, failed and running are jobs; array has two tasks that ended, and held
	// waits.
	ended, failed, running, array, held string
}

// siteUser runs the clients: one that every machine knows.
const (
	siteUser    = "nobody"
	siteUID     = 65534
	replayed    = "command lines replayed"
	runToo      = "run, where it is installed; command lines replayed"
	sourceToo   = "run, where its source is at hand; command lines replayed"
	clientsFrom = "<!-- clients: made by the tests of e2e -->\n\n"
	clientsTo   = "\n<!-- end of clients -->"
)

// slurmCommands are the commands that clients find in PATH.
var slurmCommands = []string{
	"sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct", "sacctmgr", "seff", "sshare", "srun", "salloc", "sdiag", "sstat", "sprio", "sreport",
}

// newSite starts a cluster with a partition, accounts and jobs.
func newSite(t *testing.T) *clientSite {
	c := startCluster(t, "--nodes", "2x1xT4")
	s := &clientSite{t: t, c: c, dir: scriptDir(t)}
	s.bin = filepath.Join(s.dir, "bin")
	if err := os.Mkdir(s.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range slurmCommands {
		if err := os.Symlink(appletOf(berth, name), filepath.Join(s.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.run("partition", "set", "gpu", "--nodes", "n[1-2]", "--default", "--max-time", "2h")
	c.run("account", "add", "science")
	c.run("account", "add", "science", "--user", siteUser)
	submit := func(line string) string {
		id := s.sh("sbatch --parsable -Q -A science -t 30 --mem=64 " + line)
		return strings.TrimSpace(id)
	}
	s.ended = submit("-J done -c1 --comment hello --wrap 'echo done'")
	s.failed = submit("-J bad --wrap 'exit 3'")
	s.array = submit("-J arr -a 1-2 --wrap true")
	s.running = submit("-J work --gres=gpu:1 --wrap 'sleep 3600'")
	s.held = submit("-J held -H --wrap true")
	c.await(parseID(t, s.running), "RUNNING")
	for _, id := range []string{s.ended, s.failed} {
		c.await(parseID(t, id), "COMPLETED", "FAILED")
	}
	c.eventually("the tasks of the array", func() bool { return strings.Count(s.sh("sacct -X -n -P -o state -j "+s.array), "COMPLETED") == 2 })
	return s
}

// try runs a line of a shell as the user, with the look-alikes first in PATH.
func (s *clientSite) try(line string) result {
	s.t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir = s.dir
	cmd.Env = append(clientSources(), "PATH="+s.bin+":/usr/local/bin:/usr/bin:/bin", "BERTH_SOCKET="+s.c.socket, "USER="+siteUser, "LOGNAME="+siteUser, "HOME="+s.dir, "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: siteUID, Gid: siteUID}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return result{stdout: out.String(), stderr: errs.String(), code: cmd.ProcessState.ExitCode()}
}

// sh runs a line that must succeed without a word on standard error: clients take any
// for a failure.
func (s *clientSite) sh(line string) string {
	s.t.Helper()
	r := s.try(line)
	if r.code != 0 || r.stderr != "" {
		s.t.Errorf("%s: exit code %d: %s%s", line, r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// find runs a line and returns what the client's expression finds in the answer: the
// groups of the first match.
func (s *clientSite) find(line, expr string) []string {
	s.t.Helper()
	return s.match(line, s.sh(line), expr)
}

// apart is find for clients that look at standard output alone: there sbatch says which
// options of a script are ignored.
func (s *clientSite) apart(line, expr string) []string {
	s.t.Helper()
	r := s.try(line)
	if r.code != 0 || r.stderr != "" && !strings.Contains(r.stderr, ": ignored: ") {
		s.t.Errorf("%s: exit code %d: %s", line, r.code, r.stderr)
	}
	return s.match(line, r.stdout, expr)
}

func (s *clientSite) match(line, out, expr string) []string {
	s.t.Helper()
	m := regexp.MustCompile(expr).FindStringSubmatch(out)
	if m == nil {
		s.t.Errorf("%s: no %q in %q", line, expr, out)
		return make([]string, regexp.MustCompile(expr).NumSubexp()+1)
	}
	return m
}

// says runs a line whose answer must be this, in which each %s is one of more.
func (s *clientSite) says(line, want string, more ...any) {
	s.t.Helper()
	if got := s.sh(line); got != fmt.Sprintf(want, more...) {
		s.t.Errorf("%s: %q, want %q", line, got, fmt.Sprintf(want, more...))
	}
}

// refuses runs a line that is answered in words and not done.
func (s *clientSite) refuses(line, words string) {
	s.t.Helper()
	if r := s.try(line); r.code == 0 || !strings.Contains(r.stderr, words) {
		s.t.Errorf("%s: exit code %d, %q; want words of %q", line, r.code, r.stdout+r.stderr, words)
	}
}

// until asks until the answer holds a match.
func (s *clientSite) until(line, expr string) {
	s.t.Helper()
	re := regexp.MustCompile(expr)
	s.c.eventually(line+" to say "+expr, func() bool { return re.MatchString(s.try(line).stdout) })
}

// script writes a batch script of the user's and returns its path.
func (s *clientSite) script(name string, lines ...string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	write(s.t, path, "#!/bin/bash\n"+strings.Join(lines, "\n")+"\n")
	return path
}

// join is a list of a client's fields as it writes them between others.
func join(fields, between string) string { return strings.Join(strings.Split(fields, " "), between) }

// TestSlurmClients runs for each client what it asks of Slurm, and reads the answers as
// it does; then the clients themselves that are there, all at once.
func TestSlurmClients(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, x := range slurmClients() {
		t.Run(x.name, func(t *testing.T) {
			in := *s
			in.t = t
			x.lines(&in)
		})
		if x.real == nil {
			continue
		}
		t.Run(x.name+", itself", func(t *testing.T) {
			t.Parallel()
			in := *s
			in.t = t
			if in.try(x.needs).code != 0 {
				t.Skipf("its command lines are replayed; %s itself is not run, since this fails: %s", x.name, x.needs)
			}
			x.real(&in)
		})
	}
}

// TestClientsDocs holds the table of docs/slurm.md to what is tried; with -update it is
// written again.
func TestClientsDocs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| client | version | what was run | works |\n| --- | --- | --- | --- |\n")
	whole := 0
	for _, x := range slurmClients() {
		works := "yes"
		if x.partly != "" {
			works = "partly: " + x.partly
		} else {
			whole++
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", x.name, x.version, x.what, works)
	}
	const path = "../docs/slurm.md"
	before, rest, ok := strings.Cut(read(t, path), clientsFrom)
	table, after, closed := strings.Cut(rest, clientsTo)
	if !ok || !closed {
		t.Fatal("docs/slurm.md has lost the marks around the table of clients")
	}
	if *update {
		table = b.String()
		if err := os.WriteFile(path, []byte(before+clientsFrom+table+clientsTo+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(b.String(), table); d != "" {
		t.Errorf("docs/slurm.md (-want +got):\n%s", d)
	}
	if whole < 20 {
		t.Errorf("only %d clients work whole", whole)
	}
}
