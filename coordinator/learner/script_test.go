package learner

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/proto/conv/plainconv"
)

func packed(t interface{ Fatal(...any) }, script []byte) []byte {
	p, err := plainconv.PackScript(script)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestScriptsThatUnpackToMuch: a script that packs a thousandfold is looked at about as far as
// what was sent of it goes, and is still told from others that begin alike. In whole, 200 of
// them in one request of 0.8 MB kept a coordinator busy for 16 s.
func TestScriptsThatUnpackToMuch(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("a\n"), cluster.MaxScript/2-8)
	ending := func(with string) []byte { return packed(t, append(long[:len(long):len(long)], with...)) }
	a, b := ending("b\n"), []byte(nil)
	for c := 'c'; len(b) != len(a) && c <= 'z'; c++ { // as much is looked at of both
		b = ending(string(c) + "\n")
	}
	if len(a) > 16<<10 {
		t.Fatalf("packs to %d bytes", len(a))
	}
	x, y := scriptText(a), scriptText(b)
	if most := scriptBytes + scriptRatio*len(a) + 64; len(x) > most {
		t.Errorf("%d bytes are looked at of %d that were sent, want at most %d", len(x), len(a), most)
	}
	if x == y {
		t.Error("two scripts that end differently are one job")
	}
	if x != scriptText(bytes.Clone(a)) {
		t.Error("a script is not the same as itself")
	}
}

// TestScriptText holds it against what it is in words: the lines that are no comments.
func TestScriptText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var script, want strings.Builder
		for i := range rapid.IntRange(0, 300).Draw(t, "lines") {
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				fmt.Fprintf(&script, "#SBATCH --time=%d\n", i)
			case 1:
				script.WriteString("  \n")
			default:
				word := rapid.StringMatching(`[a-z]{1,30}`).Draw(t, "word")
				fmt.Fprintf(&script, "  %s %d \n", word, i)
				fmt.Fprintf(&want, "%s %d\n", word, i)
			}
		}
		if got := scriptText(packed(t, []byte(script.String()))); script.Len() <= scriptBytes && got != want.String() {
			t.Fatalf("%q, want %q", got, want.String())
		}
	})
	if got := scriptText([]byte("no gzip")); got != "" {
		t.Errorf("%q of what is no packed script", got)
	}
}
