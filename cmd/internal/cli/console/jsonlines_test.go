package console

import (
	"bufio"
	"bytes"
	"errors"
	"testing"
)

// TestListsAreWrittenAsAWhole: what is written element by element is what is written of
// the whole list at once, alone and as the last member of an object.
func TestListsAreWrittenAsAWhole(t *testing.T) {
	t.Parallel()
	type element struct {
		Name string   `json:"name"`
		Of   []string `json:"of"`
	}
	type head struct {
		Meta   map[string]int `json:"meta"`
		Errors []string       `json:"errors"`
	}
	type whole struct {
		head
		Jobs []element `json:"jobs"`
	}
	h := head{Meta: map[string]int{"é": 1}, Errors: []string{}}
	all := []element{{"a[]}", []string{}}, {"\x1b[31m", []string{"x", "ü"}}, {}}
	for n := range len(all) + 1 {
		for _, c := range []struct {
			list JSONList
			want any
		}{{JSONList{}, all[:n]}, {JSONList{Of: h, Member: "jobs"}, whole{h, all[:n]}}} {
			var got, want bytes.Buffer
			e, f := &Env{Out: bufio.NewWriter(&got)}, &Env{Out: bufio.NewWriter(&want)}
			for _, x := range all[:n] {
				if err := c.list.Add(e, x); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.list.Close(e); err != nil {
				t.Fatal(err)
			}
			if err := printJSON(f, c.want); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(e.Out.Flush(), f.Out.Flush()); err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String() {
				t.Errorf("%d elements:\n%s\nwant\n%s", n, got.String(), want.String())
			}
		}
	}
}
