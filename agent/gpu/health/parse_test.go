package health

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Line{
		"6,339,5140900,-;NVRM: hello":    {Seq: 339, Since: 5140900 * time.Microsecond, Text: "NVRM: hello"},
		"4,340,5140901,c,caller=T1;a;b":  {Seq: 340, Since: 5140901 * time.Microsecond, Text: "a;b"},
		"0,18446744073709551615,0,-;":    {Seq: 18446744073709551615},
		"7,1,9007199254740991,-;x\n":     {Seq: 1, Since: time.Duration(1<<52) * time.Microsecond, Text: "x"},
		"14,339,5140900,-;NVRM: by root": {}, // facility user: a program wrote it
		" SUBSYSTEM=pci":                 {},
		" 6,339,1,-;continued":           {},
		"6,339;NVRM: short":              {},
		"-6,339,1,-;x":                   {},
		"6,,1,-;x":                       {},
		"":                               {},
	} {
		got, ok := ParseLine(in)
		if ok != (want != Line{}) || got != want {
			t.Errorf("%q: %+v %t, want %+v", in, got, ok, want)
		}
	}
}

func TestParseReport(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		want     Report
	}{
		{"of today's drivers", "NVRM: Xid (PCI:0000:3b:00): 79, pid=2847, name=python3, GPU has fallen off the bus.",
			Report{PCI: "0000:3b:00", Xid: 79, PID: 2847, Detail: "pid=2847, name=python3, GPU has fallen off the bus."}},
		{"without a process", "NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error",
			Report{PCI: "0000:3b:00", Xid: 48, Detail: "pid='<unknown>', name=<unknown>, An uncorrectable double bit error"}},
		{"quoted pid", "NVRM: Xid (PCI:0001:c1:00): 13, pid='77', Graphics SM Warp Exception", Report{PCI: "0001:c1:00", Xid: 13, PID: 77, Detail: "pid='77', Graphics SM Warp Exception"}},
		{"of old drivers", "NVRM: Xid (0000:03:00): 31, Ch 00000010", Report{PCI: "0000:03:00", Xid: 31, Detail: "Ch 00000010"}},
		{"nothing after it", "NVRM: Xid (PCI:0000:3b:00): 45", Report{PCI: "0000:3b:00", Xid: 45}},
		{"off the bus without a number", "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", Report{PCI: "0000:3b:00", Detail: "GPU 0000:3b:00.0: GPU has fallen off the bus."}},
		{"off the bus, other words", "NVRM: The NVIDIA GPU 0000:AF:00.0 has fallen off the bus and is not responding to commands.", Report{
			PCI: "0000:af:00", Detail: "The NVIDIA GPU 0000:AF:00.0 has fallen off the bus and is not responding to commands."}},
		{"off the bus, nobody knows who", "NVRM: A GPU crash dump: GPU has fallen off the bus", Report{}},
		{"no number", "NVRM: Xid (PCI:0000:3b:00): , pid=1", Report{}},
		{"number 0", "NVRM: Xid (PCI:0000:3b:00): 0, pid=1", Report{}},
		{"number too large", "NVRM: Xid (PCI:0000:3b:00): 70000, pid=1", Report{}},
		{"no place", "NVRM: Xid (PCI:bus): 79", Report{}},
		{"somebody else's", "python: NVRM: Xid (PCI:0000:3b:00): 79, pid=1", Report{}},
		{"another line of the driver", "NVRM: loading NVIDIA UNIX Open Kernel Module", Report{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := ParseReport(tc.in)
			if d := cmp.Diff(tc.want, got); d != "" || ok != (tc.want != Report{}) {
				t.Errorf("ok %t: %s", ok, d)
			}
		})
	}
}

func TestPCIKey(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"0000:3b:00.0": "0000:3b:00", "00000000:3B:00.0": "0000:3b:00", "PCI:0000:3b:00": "0000:3b:00", "3b:00.0": "0000:3b:00",
		"00010000:01:00.0": "10000:01:00", "": "", "0000:3b": "0000:00:3b", "0000:3b:00:1": "", "x:3b:00": "", "0000:1ff:00": "", "000000000:3b:00": "",
	} {
		if in == "0000:3b" { // two parts are bus and device
			want = "0000:00:3b"
			in = "00:3b"
		}
		if got, ok := PCIKey(in); got != want || ok != (want != "") {
			t.Errorf("%q: %q %t, want %q", in, got, ok, want)
		}
	}
}

// FuzzKmsg: whatever stands in the log, what is read of it is bounded and can
// be shown, and a place has one spelling.
func FuzzKmsg(f *testing.F) {
	f.Add("6,339,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=2847, name=python3, GPU has fallen off the bus.\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n")
	f.Add("6,340,5140901,-;NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n")
	f.Add("6,341,5140901,-;NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, \xff\x1b[31m\n")
	f.Add("6,1,,-;\n\n;;,,,\n")
	f.Fuzz(func(t *testing.T, s string) {
		rest := feed([]byte(s), func(l Line) {
			if l.Since < 0 || strings.Contains(l.Text, "\n") {
				t.Fatalf("line %+v", l)
			}
			r, ok := ParseReport(l.Text)
			if !ok {
				return
			}
			if key, good := PCIKey(r.PCI); !good || key != r.PCI {
				t.Errorf("place %q reads as %q", r.PCI, key)
			}
			if r.Xid < 0 || r.Xid > 65535 || r.PID < 0 || len(r.Detail) > 120 || !utf8.ValidString(r.Detail) || strings.ContainsAny(r.Detail, "\x1b\n\r") {
				t.Errorf("report %+v", r)
			}
		})
		if strings.Contains(string(rest), "\n") {
			t.Errorf("left %q", rest)
		}
	})
}

func TestTable(t *testing.T) {
	t.Parallel()
	want := map[int]Action{}
	for _, c := range []int{13, 31, 43, 45, 68, 109} {
		want[c] = Record
	}
	for _, c := range []int{48, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140} {
		want[c] = Drain
	}
	var zero Table
	for c, a := range want {
		x := zero.Lookup(c)
		if !x.Known || x.Text == "" || (x.Action == Record) != (a == Record) {
			t.Errorf("Xid %d: %+v", c, x)
		}
	}
	if x := zero.Lookup(999); x.Known || x.Action != Drain {
		t.Errorf("a number that nobody knows: %+v", x)
	}
	if len(known) != len(want) {
		t.Errorf("%d in the table, want %d", len(known), len(want))
	}
	site := NewTable(map[int]Action{94: Record, 555: End})
	if site.Lookup(94).Action != Record || site.Lookup(555).Action != End || !site.Lookup(555).Known || site.Lookup(79).Action != End {
		t.Errorf("overridden: %+v", site)
	}
	for a := Record; a <= End; a++ {
		if got, err := ParseAction(a.String()); got != a || err != nil {
			t.Errorf("%s reads as %s, %v", a, got, err)
		}
	}
	if _, err := ParseAction("ignore"); err == nil {
		t.Error("an action that there is not is read")
	}
}

// bus makes a folder of PCI devices.
func bus(t *testing.T, devices map[string][2]string) string {
	t.Helper()
	root := t.TempDir()
	for name, d := range devices {
		plug(t, root, name, d[0], d[1])
	}
	return root
}

func plug(t *testing.T, root, name, vendor, class string) {
	t.Helper()
	dir := filepath.Join(root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"vendor": vendor, "class": class} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPCICards(t *testing.T) {
	t.Parallel()
	root := bus(t, map[string][2]string{
		"0000:3b:00.0": {"0x10de", "0x030200"}, // a data centre card
		"0000:3b:00.1": {"0x10de", "0x040300"}, // its sound
		"0000:01:00.0": {"0x10de", "0x030000"}, // one with a monitor
		"0000:02:00.0": {"0x1002", "0x030000"}, // another maker's
		"0000:05:00.0": {"0x10de", "0x068000"}, // an NVSwitch
	})
	if err := os.Mkdir(filepath.Join(root, "0000:07:00.0"), 0o755); err != nil { // on its way out
		t.Fatal(err)
	}
	got, err := PCICards(root)
	if d := cmp.Diff([]string{"0000:01:00", "0000:3b:00"}, got); d != "" || err != nil {
		t.Errorf("%v: %s", err, d)
	}
	if _, err := PCICards(filepath.Join(root, "none")); err == nil {
		t.Error("a folder that is not there is read")
	}
}
