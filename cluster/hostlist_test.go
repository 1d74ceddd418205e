package cluster

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// naiveHosts writes all names of a host list out, one by one; false where the text
// is none.
func naiveHosts(text string) (names []string, ok bool) {
	text = strings.TrimSpace(text)
	items, err := splitOutside(text)
	if text == "" || err != nil {
		return nil, false
	}
	ok = true
	for _, item := range items {
		out := []string{""}
		for rest := strings.TrimSpace(item); rest != ""; {
			before, after, bracket := strings.Cut(rest, "[")
			inside, next, _ := strings.Cut(after, "]")
			var ends []string
			if rest = next; !bracket {
				ends = []string{""}
			} else {
				for _, span := range strings.Split(inside, ",") {
					lo, hi, width, err := parseSpan(strings.TrimSpace(span))
					ok = ok && err == nil
					for n := lo; err == nil && n <= hi; n++ {
						ends = append(ends, fmt.Sprintf("%0*d", width, n))
					}
				}
			}
			var longer []string
			for _, o := range out {
				for _, e := range ends {
					longer = append(longer, o+before+e)
				}
			}
			if out = longer; len(out) > MaxHostNames {
				return nil, false
			}
		}
		names = append(names, out...)
	}
	for _, n := range names {
		ok = ok && CheckName("node", n) == nil
	}
	return names, ok && len(names) <= MaxHostNames
}

// TestHostListsAgainstNaive: a list is taken, holds, counts and names what its
// names, written out, are.
func TestHostListsAgainstNaive(t *testing.T) {
	t.Parallel()
	number := rapid.SampledFrom([]string{"0", "1", "7", "9", "10", "12", "01", "09", "007", "099", "100", "999999999", "1234567890", "x", ""})
	piece := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 5).Draw(t, "piece") {
		case 0, 1:
			return rapid.SampledFrom([]string{"a", "n", "1", "0", "a-", "_", ".", " ", "B", "]", strings.Repeat("long", 15)}).Draw(t, "text")
		}
		var spans []string
		for range rapid.IntRange(1, 3).Draw(t, "spans") {
			s := number.Draw(t, "from")
			if rapid.Bool().Draw(t, "range") {
				s += "-" + number.Draw(t, "to")
			}
			spans = append(spans, s)
		}
		return "[" + strings.Join(spans, ",") + "]"
	})
	rapid.Check(t, func(t *rapid.T) {
		var parts []string
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			parts = append(parts, rapid.SampledFrom([]string{"", "n", "a", "n1", " n"}).Draw(t, "begins")+strings.Join(rapid.SliceOfN(piece, 0, 3).Draw(t, "pieces"), ""))
		}
		text := strings.Join(parts, ",")
		if strings.EqualFold(strings.TrimSpace(text), AllNodes) {
			return
		}
		names, ok := naiveHosts(text)
		h, err := ParseHostList(text)
		if (err == nil) != ok {
			t.Fatalf("%q: %v, taken %t", text, err, ok)
		}
		if !ok {
			return
		}
		var once []NodeID
		for _, n := range names {
			if !slices.Contains(once, NodeID(n)) {
				once = append(once, NodeID(n))
			}
			for _, other := range []string{n, n + "0", "0" + n, strings.TrimSuffix(n, "0"), strings.Replace(n, "0", "", 1), strings.Replace(n, "1", "2", 1)} {
				if got, want := h.Holds(NodeID(other)), slices.Contains(names, other); got != want {
					t.Fatalf("%q holds %q: %t", text, other, got)
				}
			}
			if len(once) > 200 {
				return
			}
		}
		if got := h.Names(); !slices.Equal(got, once) || h.Len() != len(once) {
			t.Fatalf("%q: names %v, %d of them; want %v", text, got, h.Len(), once)
		}
	})
}

// TestHostListsTakeLittle: whatever it names, a list takes memory as its text is
// long, and is read without its names being made.
func TestHostListsTakeLittle(t *testing.T) {
	const n = 200
	for _, text := range []string{
		"x[0-16382]", "x[0-99][0-99]", strings.Repeat("n[1-9],", 1000) + "a", "n[" + strings.Repeat("7,", 4000) + "7]",
		strings.Repeat("n,", 4000) + "n", "[1,11]" + strings.Repeat("[1,11]", 12) + "x",
	} {
		lists := make([]HostList, n)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range lists {
			var err error
			if lists[i], err = ParseHostList(fmt.Sprintf("%s,y%d", text, i)); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		held := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		if most := int64(n * (1024 + 10*len(text))); held > most {
			t.Errorf("%.20s…: %d lists hold %d KiB, want at most %d", text, n, held>>10, most>>10)
		}
		if made := after.Mallocs - before.Mallocs; made > n*uint64(200+6*len(text)) {
			t.Errorf("%.20s…: %d allocations a list", text, made/n)
		}
		if !lists[7].Holds("y7") || lists[7].Holds("y8") {
			t.Errorf("%.20s…: the last name is lost", text)
		}
	}
}

func BenchmarkHostList(b *testing.B) {
	for _, text := range []string{"gpu[01-04],n7", "x[0-16383]", strings.Repeat("n[1,3],", 255) + "x[1-3]"} {
		b.Run(fmt.Sprintf("parse/%.12s", text), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseHostList(text); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("holds/%.12s", text), func(b *testing.B) {
			h, _ := ParseHostList(text)
			for b.Loop() {
				h.Holds("x1234")
			}
		})
	}
}
