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
