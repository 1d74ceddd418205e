package admin

import (
	"testing"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestUnknownAccount: who names an account that is not there is told which are,
// and what to type.
func TestUnknownAccount(t *testing.T) {
	t.Parallel()
	if got, want := unknownAccount("bio", nil, ", then add its users").Error(), `account "bio" is not known (there are none yet); create it first with: berth account add bio, then add its users`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := unknownAccount("bio", []*apiv1.Account{{Name: "chem"}, {Name: "site"}}, "").Error(), `account "bio" is not known (there are chem, site); create it first with: berth account add bio`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestQuotasTakeNone: none removes every limit, and what is no number is said in
// words.
func TestQuotasTakeNone(t *testing.T) {
	t.Parallel()
	cmd := newQuotaSetCmd(nil, nil)
	for _, flag := range []string{"gpus", "running", "jobs", "gpu-hours", "max-time", "max-gpus"} {
		if err := cmd.ParseFlags([]string{"--" + flag, "none"}); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]int64{"none": 0, "0": 0, "12": 12, "-1": -1, "two": -1, "1.5": -1, "": -1} {
		if n, err := whole(text); err != nil && want >= 0 || err == nil && n != want {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
}
