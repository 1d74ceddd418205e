package slurmcmd_test

import (
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/cli/clitest"
	"github.com/berth-scheduler/berth/cmd/internal/golden"
)

// TestSshareGolden holds what sshare shows of a tree of accounts.
func TestSshareGolden(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"sshare":        "sshare",
		"sshare-all":    "sshare -a -l",
		"sshare-users":  "sshare -U -u ada,1002 -P",
		"sshare-of":     "sshare -h -a -A bio,lab",
		"sshare-fields": "sshare -n -p -a -o account,user,rawu,fairshare,levelfs,cluster",
		"sshare-help":   "sshare -e",
		"sshare-field":  "sshare -o nosuch",
		"sshare-option": "sshare --nosuch",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := clitest.NewWorld(t)
			w.Serve("/a", clitest.NewFake())
			golden.Check(t, name, w.Transcript(strings.Fields(line)...))
		})
	}
}
