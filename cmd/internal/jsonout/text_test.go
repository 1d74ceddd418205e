package jsonout

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster/draws"
)

var _ = draws.Fixed()

// FuzzIndentJSON: what is written is what json.Indent writes.
func FuzzIndentJSON(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `[{},[],""]`, `{"a":[1,-2.5e9,true,null],"b\"\\":{"c":"d:,{}[]\\\""}}`, `"x"`, `7`, `[[[["é"]]]]`} {
		f.Add(s, 1)
		f.Add(s, 17)
	}
	f.Fuzz(func(t *testing.T, text string, depth int) {
		var compact, want bytes.Buffer
		if json.Compact(&compact, []byte(text)) != nil || depth < 0 || depth > 20 {
			return
		}
		if err := json.Indent(&want, compact.Bytes(), strings.Repeat("  ", depth), "  "); err != nil {
			t.Skip(err)
		}
		if got := string(AppendIndented(nil, compact.Bytes(), depth)); got != want.String() {
			t.Errorf("%s at depth %d:\n%s\nwant\n%s", text, depth, got, want.String())
		}
	})
}
