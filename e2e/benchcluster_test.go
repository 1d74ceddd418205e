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

// benchCluster runs berth dev with args and returns what runs a command of
// berth against it and gives its output.
func benchCluster(b *testing.B, args ...string) func(stdin string, args ...string) string {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("berth dev submits as root here")
	}
	// The command of berth dev lives until its standard input ends.
	args = slices.Concat([]string{"dev", "--dir", b.TempDir() + "/c"}, args, []string{"--", "sh", "-c", "echo $BERTH_SOCKET; cat"})
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
	env := append(os.Environ(), "BERTH_SOCKET="+strings.TrimSpace(line))
	return func(stdin string, args ...string) string {
		cmd := exec.Command(berth, args...)
		cmd.Env, cmd.Stdin = env, strings.NewReader(stdin)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		text, err := cmd.Output()
		if err != nil {
			b.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
		return string(text)
	}
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
