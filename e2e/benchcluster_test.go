package e2e

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// benchSite is a cluster of berth dev that ends with the benchmark.
type benchSite struct {
	b   *testing.B
	dir string // its processes have it on their command lines
	env []string
}

// benchCluster runs berth dev with args and returns what runs a command of
// berth against it and gives its output.
func benchCluster(b *testing.B, args ...string) func(stdin string, args ...string) string {
	site := startBenchSite(b, args...)
	return func(stdin string, args ...string) string {
		return site.output(stdin, append([]string{berth}, args...)...)
	}
}

func startBenchSite(b *testing.B, args ...string) *benchSite {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("berth dev submits as root here")
	}
	s := &benchSite{b: b, dir: b.TempDir() + "/c"}
	// The command of berth dev lives until its standard input ends.
	args = slices.Concat([]string{"dev", "--dir", s.dir}, args, []string{"--", "sh", "-c", "echo $BERTH_SOCKET; cat"})
	dev := exec.Command(berth, args...)
	in, err := dev.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := dev.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := dev.Wait(); err != nil {
			b.Log("berth dev: ", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	s.env = append(os.Environ(), "BERTH_SOCKET="+strings.TrimSpace(line))
	return s
}

// command is one of a cluster that is not started yet.
func (s *benchSite) command(stdin string, argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdin = s.env, strings.NewReader(stdin)
	return cmd
}

func (s *benchSite) output(stdin string, argv ...string) string {
	cmd := s.command(stdin, argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if err != nil {
		s.b.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, errs.String())
	}
	return string(text)
}

// medians collects times by name and reports the median of each.
type medians map[string][]time.Duration

// timed runs do and keeps how long it took.
func (m medians) timed(name string, do func()) {
	began := time.Now()
	do()
	m[name] = append(m[name], time.Since(began))
}

func (m medians) report(b *testing.B) {
	for name, took := range m {
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-ms")
	}
}
