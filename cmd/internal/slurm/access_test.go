package slurm

import "testing"

func TestAccessLine(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]*Partition{
		"AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL":            {},
		"AllowGroups=lab,hpc AllowAccounts=bio,chem AllowQos=high":  {AllowGroups: []string{"lab", "hpc"}, AllowAccounts: []string{"bio", "chem"}, AllowQOS: []string{"high"}},
		"AllowGroups=ALL DenyAccounts=guests DenyQos=low,scavenger": {DenyAccounts: []string{"guests"}, DenyQOS: []string{"low", "scavenger"}},
	} {
		if got := accessLine(p); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
