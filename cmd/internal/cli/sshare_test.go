package cli

import (
	"context"
	"strings"
	"testing"

	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// ListStanding answers with a tree of accounts, parents first and else in no
// order, and who used how much.
func (f *fakeServer) ListStanding(ctx context.Context, r *apiv1.ListStandingRequest) (*apiv1.ListStandingResponse, error) {
	if err := f.enter(ctx, "ListStanding"); err != nil {
		return nil, err
	}
	use := func(shares, used float64, gpuHours int64, rank uint32) *apiv1.Use {
		return &apiv1.Use{SharesPart: shares, UsePart: used, LeftUs: gpuHours * 3600e6, Rank: rank, Of: min(rank*4, 4)}
	}
	return &apiv1.ListStandingResponse{
		Accounts: []*apiv1.Account{
			{Name: "science", Shares: 3, Use: use(0.75, 0.8, 80, 0)}, {Name: "lab", Shares: 1, Use: use(0.25, 0.2, 20, 0)},
			{Name: "chem", Parent: "science", Shares: 1, Use: use(0.25, 0, 0, 0)}, {Name: "bio", Parent: "science", Shares: 3, Use: use(0.75, 1, 80, 0)},
		},
		Members: []*apiv1.AccountUser{
			{Account: "bio", Uid: 1001, Name: "ann", Shares: 1, Use: use(1.0/3, 0.9, 72, 4)}, {Account: "bio", Uid: 1000, Name: "ada", Shares: 2, Use: use(2.0/3, 0.1, 8, 2)},
			{Account: "chem", Uid: 1002, Shares: 1, Use: use(1, 0, 0, 1)}, {Account: "lab", Uid: 1001, Name: "ann", Shares: 1, Use: use(1, 1, 20, 3)},
		},
	}, nil
}

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
			w := newWorld(t)
			w.serve("/a", newFake())
			golden(t, name, w.transcript(strings.Fields(line)...))
		})
	}
}
