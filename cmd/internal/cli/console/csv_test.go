package console

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
)

func TestCSV(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ cell, guarded, raw string }{
		{"train", "train", "train"},
		{"", "", ""},
		{"a,b", `"a,b"`, `"a,b"`},
		{`say "hi"`, `"say ""hi"""`, `"say ""hi"""`},
		{"two\nlines", `two\nlines`, "\"two\nlines\""},
		{"\t=1+1", `\t=1+1`, "\"\t=1+1\""},
		{"=1+1", "'=1+1", "=1+1"},
		{"+49", "'+49", "+49"},
		{"-2", "'-2", "-2"},
		{"@SUM(A1)", "'@SUM(A1)", "@SUM(A1)"},
		{"＝1", "'＝1", "＝1"},
		{`=cmd|' /C calc'!A0,"x"`, `"'=cmd|' /C calc'!A0,""x"""`, `"=cmd|' /C calc'!A0,""x"""`},
		{"1-2", "1-2", "1-2"},
		{"é 🚀", "é 🚀", "é 🚀"},
		{"\xff\xfe", `\xff\xfe`, "\xff\xfe"},
		{"\x1b[2J", `\x1b[2J`, "\x1b[2J"},
	} {
		for cells, want := range map[Cells]string{CellsGuarded: x.guarded, CellsRaw: x.raw} {
			var b bytes.Buffer
			w := NewCSV(&b, cells)
			if err := w.Write([]string{"a", x.cell, "z"}); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if got := b.String(); got != "a,"+want+",z\n" {
				t.Errorf("%q, %d: %q, want %q", x.cell, cells, got, "a,"+want+",z\n")
			}
		}
	}
}

// FuzzCSV: raw cells come back as they were, but for the line ends that readers
// make one; guarded ones are one line each and no formula, and say the same.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"train", "a,b", "\"", "=1+1", "x\r\ny", "\xff", "-", "'=x", "\u202e", " lead", ""} {
		f.Add(s, "second")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		read := func(cells Cells) []string {
			var b bytes.Buffer
			w := NewCSV(&b, cells)
			_, _ = w.Write([]string{one, two, "end"}), w.Flush()
			if cells == CellsGuarded && strings.Count(b.String(), "\n") != 1 {
				t.Fatalf("more than one line: %q", b.String())
			}
			got, err := csv.NewReader(&b).ReadAll()
			if err != nil || len(got) != 1 {
				t.Fatalf("%q, %v", got, err)
			}
			return got[0]
		}
		ends := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
		if got, want := read(CellsRaw), []string{ends(one), ends(two), "end"}; !slices.Equal(got, want) {
			t.Fatalf("raw: %q, want %q", got, want)
		}
		got := read(CellsGuarded)
		for i, s := range []string{one, two, "end"} {
			if got[i] != "" && strings.ContainsAny(got[i][:1], "=+-@\t\r\n") {
				t.Fatalf("%q may be computed", got[i])
			}
			if want := Escape(s); got[i] != want && got[i] != "'"+want {
				t.Fatalf("guarded: %q, want %q", got[i], want)
			}
		}
	})
}
