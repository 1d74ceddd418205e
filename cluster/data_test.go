package cluster_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
)

// TestDataSetsOfAJob: names are features of nodes and each has a variable of its own.
func TestDataSetsOfAJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data []string
		want string // in the error, "" for none
	}{
		{[]string{"imagenet", "coco.2017", "lm_1b-en"}, ""},
		{[]string{strings.Repeat("x", 58)}, ""},
		{[]string{strings.Repeat("x", 59)}, "1 to 58"},
		{[]string{""}, "data"},
		{[]string{"a/b"}, "letters"},
		{[]string{"a=b"}, "letters"},
		{[]string{".hidden"}, "begin and end with neither"},
		{[]string{"lm-1b", "lm.1b"}, "would both be told as BERTH_DATA_LM_1B"},
		{[]string{"coco", "coco"}, "would both be told"},
		{strings.Split("a b c d e f g h i", " "), "9 data sets, at most 8"},
	} {
		s := cluster.Spec{Name: "j", Command: []string{"true"}, Data: c.data}
		if err := s.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.data, err, c.want)
		}
	}
	if got := cluster.DataEnv("imagenet-1k.v2"); got != "BERTH_DATA_IMAGENET_1K_V2" {
		t.Errorf("told as %s", got)
	}
}

// TestOneMoreFeature is required in each of the sets.
func TestOneMoreFeature(t *testing.T) {
	t.Parallel()
	for was, want := range map[string]string{"": "data=coco", "a100": "a100&data=coco", "a100&nvlink|h100": "a100&nvlink&data=coco|h100&data=coco"} {
		f, err := cluster.ParseFeatures(was)
		if err != nil {
			t.Fatal(err)
		}
		if f, err = f.And("data=coco"); err != nil || f.String() != want {
			t.Errorf("%q: %q, %v, want %q", was, f, err, want)
		}
	}
}
