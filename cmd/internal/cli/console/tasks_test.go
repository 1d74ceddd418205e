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
	if _, tasks, err := ParseJobs([]string{"9_[0,3-5%2]", "9_[1-9:2%10]"}); err != nil || cmp.Diff([]TaskRef{{9, "0,3-5"}, {9, "1-9:2"}}, tasks) != "" {
		t.Errorf("as lists show them: %v, %v", tasks, err)
	}
	for in, want := range map[string]string{
		"9_[3%]": "no task number", "9_[3%x]": "no task number", "9_3%2": "in brackets", "9_": "no task number", "9_[": "] is missing", "9_[3": "] is missing", "9_3-5": "in brackets", "_3": "job id", "9_[5-3]": "counts down",
		"9_[]": "no task number", "9_x": "no task number", "9_[1-10000000]": "above 4194303",
	} {
		if _, _, err := ParseJobs([]string{in}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ...%s...", in, err, want)
		}
	}
}

// TestParseShown: what lists show of tasks that wait alike is taken for the first.
func TestParseShown(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]uint32{"9_7": 7, "9_[3-5]": 3, "9_[8,2-4%2]": 2} {
		if id, task, err := ParseShown(in); err != nil || id != 9 || *task != want {
			t.Errorf("%s: task %v of %d, %v, want %d", in, task, id, err, want)
		}
	}
	if id, task, err := ParseShown("9"); err != nil || id != 9 || task != nil {
		t.Errorf("9: task %v of %d, %v", task, id, err)
	}
	for in, want := range map[string]string{"9_[": "] is missing", "9_[]": "no task number", "9_x": "want one task", "x_[1-2]": "job id"} {
		if _, _, err := ParseShown(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want ...%s...", in, err, want)
		}
	}
}
