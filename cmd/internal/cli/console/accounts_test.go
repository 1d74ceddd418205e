package console

import (
	"errors"
	"os/user"
	"testing"
)

// TestAccountsOfANameService: who is in no file of the machine's is asked of
// getent, once, and what that says of another is not believed.
func TestAccountsOfANameService(t *testing.T) {
	t.Parallel()
	asked := 0
	a := &accounts{known: map[string][]string{}, ask: func(database, key string) string {
		asked++
		return map[string]string{
			"passwd ann": "ann:*:70001:70002:Ann Example,,,:/home/ann:/bin/bash\n",
			"passwd 12":  "ann:*:70001:70002:Ann Example,,,:/home/ann:/bin/bash\n", // an account called 12 would be meant
			"passwd bob": "bob:*:1\n",
		}[database+" "+key]
	}}
	named := func(name string) func(*user.User) bool { return func(u *user.User) bool { return u.Username == name } }
	none := errors.New("none")
	for range 2 {
		u, err := a.user("ann", named("ann"), none)
		if err != nil || *u != (user.User{Username: "ann", Uid: "70001", Gid: "70002", Name: "Ann Example,,,", HomeDir: "/home/ann"}) {
			t.Errorf("ann: %+v, %v", u, err)
		}
		for _, name := range []string{"12", "bob", "eve"} {
			if u, err := a.user(name, named(name), none); !errors.Is(err, none) {
				t.Errorf("%s: %+v, %v", name, u, err)
			}
		}
	}
	if asked != 4 {
		t.Errorf("asked %d times of 4 accounts", asked)
	}
}
