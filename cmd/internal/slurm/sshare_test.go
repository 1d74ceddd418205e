package slurm

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recordedShares are the accounts of which Slurm's output was recorded, but for
// a user who has his parent's shares: there is no such thing here.
func recordedShares() []Share {
	s := func(depth int, account, user string, shares int64, norm float64) Share {
		return Share{Account: account, User: user, Depth: depth, Shares: shares, NormShares: norm}
	}
	out := []Share{
		s(0, "root", "", 1, 0), s(1, "root", "root", 1, 0.2), s(1, "lab", "", 1, 0.2), s(2, "lab", "root", 1, 1), s(1, "science", "", 3, 0.6),
		s(2, "bio", "", 3, 0.75), s(3, "bio", "nobody", 2, 2.0/3), s(3, "bio", "root", 1, 1.0/3), s(2, "chem", "", 1, 0.25), s(3, "chem", "daemon", 1, 1),
	}
	out[0].EffUsage, out[1].FairShare = 1, 1
	return out
}

// TestSshareAsRecorded holds sshare against what Slurm printed.
func TestSshareAsRecorded(t *testing.T) {
	of := func(keep func(*Share) bool, up int) []Share {
		out := slices.DeleteFunc(recordedShares(), func(s Share) bool { return !keep(&s) })
		for i := range out {
			out[i].Depth -= up
		}
		return out
	}
	all, later := recordedShares(), recordedShares()
	for i := range later { // it was recorded minutes later
		later[i].FairShare = 1
	}
	for file, c := range map[string]struct {
		a      Sshare
		shares []Share
	}{
		"sshare_a": {shares: all},
		"sshare_P": {a: Sshare{Layout: Layout{Parsable2: true}}, shares: all},
		"sshare_p": {a: Sshare{Layout: Layout{Parsable: true}}, shares: all},
		"sshare_h": {a: Sshare{Layout: Layout{NoHead: true}}, shares: all},
		"sshare_U": {a: Sshare{UsersOnly: true}, shares: all},
		"sshare_m": {a: Sshare{Partitions: true}, shares: all},
		"sshare_l": {a: Sshare{Long: true}, shares: later},
		"sshare_A": {shares: of(func(s *Share) bool { return s.Account == "bio" }, 2)},
		"sshare_u": {shares: of(func(s *Share) bool { return s.User == "" || s.User == "nobody" }, 0)},
	} {
		var got strings.Builder
		if err := c.a.Print(&got, c.shares); err != nil {
			t.Error(err)
		}
		lines := func(text string) []string {
			text = strings.ReplaceAll(text, "cpu=0,mem=0,energy=0,node=0,b+", strings.Repeat(" ", 30)) // of TRESRunMins
			return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Contains(l, "parent") })
		}
		if d := cmp.Diff(lines(recordedText(t, file)), lines(got.String())); d != "" {
			t.Errorf("%s differs from Slurm (-) (+ours):\n%s", file, d)
		}
	}
	if d := cmp.Diff(recordedText(t, "sshare_e"), ShareFields()+"\n"); d != "" {
		t.Errorf("sshare -e (-Slurm +ours):\n%s", d)
	}
}
