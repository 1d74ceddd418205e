package cluster

import (
	"strings"
	"testing"
)

func TestAccess(t *testing.T) {
	t.Parallel()
	ann := &Asker{Accounts: []string{"bio", "science"}, QOS: "low", InGroup: func(g string) bool { return g == "lab" }}
	for _, c := range []struct {
		list, names, want string
	}{
		{AllowAccounts, "bio,chem", ""},
		{AllowAccounts, "science", ""}, // with all below it
		{AllowAccounts, "chem", "Invalid account or account/partition combination specified: partition p has allow-accounts=chem, and the job's is bio; see: berth partition show p"},
		{DenyAccounts, "science", "Invalid account or account/partition combination specified: partition p has deny-accounts=science, and the job's is bio; see: berth partition show p"},
		{AllowQOS, "high,low", ""},
		{AllowQOS, "high", "Invalid qos specification: partition p has allow-qos=high, and the job's is low; see: berth partition show p"},
		{DenyQOS, "low", "Invalid qos specification: partition p has deny-qos=low, and the job's is low; see: berth partition show p"},
		{AllowGroups, "admins,lab", ""},
		{AllowGroups, "admins", "User's group not permitted to use this partition: partition p has allow-groups=admins, and the user is in none of these groups; see: berth partition show p"},
	} {
		got := ""
		if e := Access(nil).With(c.list, strings.Split(c.names, ",")).Refuses("p", ann); e != nil {
			got = e.Msg
		}
		if got != c.want {
			t.Errorf("%s=%s: %q, want %q", c.list, c.names, got, c.want)
		}
	}
	if e := Access(nil).With(AllowQOS, []string{"x"}).Refuses("p", &Asker{}); e == nil || !strings.Contains(e.Msg, "the job has no qos") {
		t.Errorf("%v", e)
	}
	for want, a := range map[string]Access{
		"is not a list": {"allow-cats": {"x"}}, "give only one of them": Access(nil).With(AllowQOS, []string{"a"}).With(DenyQOS, []string{"b"}),
		"out of order": {AllowQOS: {"b", "a"}}, "none of them a space": {AllowQOS: {"a b"}},
	} {
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", a, err, want)
		}
	}
	if a := Access(nil).With(AllowQOS, []string{"a", "a"}).With(AllowQOS, nil); a != nil || a.Check() != nil {
		t.Errorf("%v", a)
	}
}
