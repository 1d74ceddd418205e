package slurmconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// in opens files below a folder, as if it were /etc/slurm.
func in(dir string) ReadFile {
	return func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, filepath.Clean("/"+name))) }
}

func filesIn(t testing.TB, dir string) Files {
	t.Helper()
	name := func(n string) string {
		if _, err := os.Stat(filepath.Join(dir, n)); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		return n
	}
	return Files{Conf: "slurm.conf", Gres: name("gres.conf"), Topology: name("topology.conf"), Dump: name("sacctmgr.dump"), QOS: name("qos.txt")}
}

// TestSites: what becomes of whole sites.
func TestSites(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hpc", "small", "bad"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", name)
			s, err := Read(in(dir), filesIn(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			got, path := transcript(t, s), filepath.Join(dir, "golden.txt")
			golden.CheckFile(t, path, got)
		})
	}
}

func transcript(t testing.TB, s *Site) string {
	t.Helper()
	var b strings.Builder
	for _, e := range s.Entries {
		fmt.Fprintf(&b, "%s %s %s=%s: %s: %s\n", e.Place, e.Of, e.Key, e.Value, e.Fate, e.Note)
	}
	for _, w := range s.Warnings {
		fmt.Fprintln(&b, "warning:", w)
	}
	for _, st := range s.Steps(nil) {
		fmt.Fprintln(&b, st)
	}
	for _, a := range s.Agents(true) {
		fmt.Fprint(&b, a.YAML())
	}
	if s.Accounts != nil {
		raw, err := json.MarshalIndent(s.Accounts, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", raw)
	}
	return b.String()
}

// TestLines: lines are split as Slurm does.
func TestLines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text, want string
	}{
		"one":                     {"A=1", "1 A=1"},
		"spaces and an operator":  {"  A = 1\tB += x ", "1 A=1 B+=x"},
		"quotes":                  {`Reason="a b" C=d`, "1 Reason=a b C=d"},
		"a quote that goes on":    {`Reason="a"b`, `1 rest Reason="a"b`},
		"an open quote":           {`Reason="a`, `1 rest Reason="a`},
		"a comment":               {"A=1 # B=2", "1 A=1"},
		"a hash that is none":     {`A=1\#2 B=2`, "1 A=1#2 B=2"},
		"continued":               {"A=1 \\\nB=2", "1 A=1 B=2"},
		"continued behind space":  {"A=1 \\  \nB=2", "1 A=1 B=2"},
		"continued within a word": {"A=1,\\\n2", "1 A=1,2"},
		"two backslashes":         {"A=1 \\\\\nB=2", `1 A=1 rest \\ | 2 B=2`},
		"a comment ends it":       {"A=1 # x \\\nB=2", "1 A=1 | 2 B=2"},
		"windows":                 {"A=1\r\nB=2\r\n", "1 A=1 | 2 B=2"},
		"no value":                {"A= ", "1 rest A="},
		"no key":                  {"=1", "1 rest =1"},
		"words":                   {"A=1 what B=2", "1 A=1 rest what B=2"},
		"the last goes on":        {"A=1 \\", "1 A=1"},
		"blank":                   {"\n \n#\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &reader{open: func(string) ([]byte, error) { return []byte(tc.text), nil }}
			if err := r.file("f"); err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, l := range r.out {
				text := fmt.Sprint(l.At.Line)
				for _, p := range l.Pairs {
					op := ""
					if p.Op != 0 {
						op = string(p.Op)
					}
					text += " " + p.Key + op + "=" + p.Value
				}
				if l.Rest != "" {
					text += " rest " + l.Rest
				}
				all = append(all, text)
			}
			if got := strings.Join(all, " | "); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestIncludeEndless: files that include each other are refused, and one that
// is not there is told with its line.
func TestIncludeEndless(t *testing.T) {
	t.Parallel()
	_, err := Read(func(string) ([]byte, error) { return []byte("ClusterName=x\nInclude other\n"), nil }, Files{Conf: "/etc/slurm.conf"})
	if !errors.Is(err, errTooMany) || !strings.Contains(err.Error(), "other:2") {
		t.Errorf("error %v", err)
	}
	_, err = Read(func(string) ([]byte, error) { return []byte("hello\nworld\n"), nil }, Files{Conf: "letter.txt"})
	if err == nil || !strings.Contains(err.Error(), "is it a slurm.conf?") {
		t.Errorf("error %v", err)
	}
	_, err = Read(func(string) ([]byte, error) { return make([]byte, MaxFile+1), nil }, Files{Conf: "huge"})
	if err == nil || !strings.Contains(err.Error(), "larger than 16 MiB") {
		t.Errorf("error %v", err)
	}
}

// TestReasonsAreKeys: each reason is of keys that are written as keys are, and
// none is there twice.
func TestReasonsAreKeys(t *testing.T) {
	t.Parallel()
	key := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	seen := map[string]bool{}
	for _, r := range reasons {
		for _, k := range strings.Fields(r.keys) {
			if !key.MatchString(k) || seen[strings.ToLower(k)] {
				t.Errorf("%s: no key, or there already", k)
			}
			seen[strings.ToLower(k)] = true
		}
	}
	for _, table := range []map[string]string{particular, partitionKeys, nodeKeys, gresKeys} {
		for k := range table {
			if k != strings.ToLower(k) {
				t.Errorf("%s: must be in lower case", k)
			}
		}
	}
	if len(seen) < 180 {
		t.Errorf("%d settings are known", len(seen))
	}
}

// FuzzRead: whatever stands in the files, what comes out can be used.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"hpc", "small", "bad"} {
		dir := filepath.Join("testdata", name)
		conf, err := os.ReadFile(filepath.Join(dir, "slurm.conf"))
		if err != nil {
			f.Fatal(err)
		}
		rest := [][]byte{nil, nil, nil}
		for i, n := range []string{"gres.conf", "sacctmgr.dump", "qos.txt"} {
			if data, err := os.ReadFile(filepath.Join(dir, n)); err == nil {
				rest[i] = data
			}
		}
		f.Add(conf, rest[0], rest[1], rest[2])
	}
	f.Fuzz(func(t *testing.T, conf, gres, dump, qos []byte) {
		open := func(name string) ([]byte, error) {
			data, ok := map[string][]byte{"c": conf, "g": gres, "d": dump, "q": qos}[name]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return data, nil
		}
		s, err := Read(open, Files{Conf: "c", Gres: "g", Topology: "g", Dump: "d", QOS: "q"})
		if err != nil {
			return
		}
		standard := 0
		for _, p := range s.Partitions {
			if _, err := cluster.ParseHostList(p.Nodes); err != nil {
				t.Errorf("partition %q: %v", p.Name, err)
			}
			if err := cluster.CheckPartitionName(p.Name); err != nil {
				t.Error(err)
			}
			if p.Default {
				standard++
			}
			if p.MaxTime < 0 || p.DefaultTime < 0 || p.MaxTime > 0 && p.DefaultTime > p.MaxTime {
				t.Errorf("partition %q: times %v, %v", p.Name, p.MaxTime, p.DefaultTime)
			}
		}
		if standard > 1 {
			t.Errorf("%d default partitions", standard)
		}
		for _, e := range s.Entries {
			if e.Line < 1 || e.File == "" || e.Fate != Taken && e.Note == "" {
				t.Errorf("entry %+v", e)
			}
		}
		for _, a := range s.Agents(true) {
			if a.YAML() == "" {
				t.Error("no settings")
			}
		}
	})
}
