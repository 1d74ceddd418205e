package processrt

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-scheduler/berth/agent/launch"
	"github.com/berth-scheduler/berth/agent/ranks"
	"github.com/berth-scheduler/berth/agent/runtimetest"
)

// TestMain makes the test binary its own keeper, as berth is its.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "process-keeper" {
		fs := flag.NewFlagSet("process-keeper", flag.ExitOnError)
		dir, parent := fs.String("dir", "", ""), fs.String("cgroup", "", "")
		_ = fs.Parse(os.Args[2:]) // exits on an error
		if err := KeeperMain(context.Background(), *dir, *parent, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 2 && os.Args[1] == launch.RanksArg {
		os.Exit(ranks.Main(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

func openTest(t testing.TB, dir string) *Runtime {
	t.Helper()
	rt, err := Open(t.Context(), testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func testConfig(dir string) Config {
	return Config{
		Dir: dir, Exe: []string{os.Args[0], "process-keeper"},
		CgroupParent: "/berth-test/" + filepath.Base(dir), Log: slog.New(slog.DiscardHandler),
	}
}

func TestConformance(t *testing.T) {
	opened := map[string]struct{}{}
	runtimetest.Run(t, func(t *testing.T, dir string) runtimetest.Runtime {
		// Only the first time: what is registered later runs earlier, before the
		// suite has deleted its tasks.
		if _, again := opened[dir]; !again {
			opened[dir] = struct{}{}
			t.Cleanup(func() {
				if err := StopKeeper(dir); err != nil {
					t.Error(err)
				}
			})
		}
		return openTest(t, dir)
	})
}
