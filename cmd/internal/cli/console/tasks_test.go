package console

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseJobs(t *testing.T) {
	t.Parallel()
	ids, tasks, err := ParseJobs([]string{"12,14_7", "20-22", "9_[3-5,8],9_[1-9:2]"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]uint64{12, 20, 21, 22}, ids); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]TaskRef{{14, "7"}, {9, "3-5,8"}, {9, "1-9:2"}}, tasks); d != "" {
		t.Error(d)
	}
	if got := tasks[0].String() + " " + tasks[1].String(); got != "14_7 9_[3-5,8]" {
		t.Error(got)
	}
	for in, want := range map[string]string{
		"9_": "no task number", "9_[": "] is missing", "9_[3": "] is missing", "9_3-5": "in brackets", "_3": "job id", "9_[5-3]": "counts down",
		"9_[]": "no task number", "9_x": "no task number", "9_[1-10000000]": "above 4194303",
	} {
		if _, _, err := ParseJobs([]string{in}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ...%s...", in, err, want)
		}
	}
}
