package admin

import (
	"testing"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// TestUnknownAccount: who names an account that is not there is told which are,
// and what to type.
func TestUnknownAccount(t *testing.T) {
	t.Parallel()
	if got, want := unknownAccount("bio", nil, ", and then put its users into it").Error(), `account "bio" is not known (there are none yet); make it first with: berth account add bio, and then put its users into it`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := unknownAccount("bio", []*apiv1.Account{{Name: "chem"}, {Name: "site"}}, "").Error(), `account "bio" is not known (there are chem, site); make it first with: berth account add bio`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
