package config_test

import (
	"fmt"
	"testing"

	"github.com/berth-scheduler/berth/cmd/internal/config"
)

// TestChanges: what is in use is compared with what is read again, and what
// needs a restart with what the process was started with.
func TestChanges(t *testing.T) {
	load := func(more string) *config.Loaded[config.Coordinator] {
		l, err := config.LoadCoordinator(config.Sources{Path: writeFile(t, minimal+more)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := load("")
	for _, c := range []struct {
		name, inUse, again, taken, restart string
	}{
		{name: "nothing", taken: "[]", restart: "[]"},
		{name: "policies", again: "scheduling: {policy: slot, policies: [a=ffd], interval: 2s, max_slowdown: 2, overcommit: 1.25, prices: [T4=1]}\n",
			taken: "[scheduling.max_slowdown scheduling.overcommit scheduling.interval scheduling.prices scheduling.policy scheduling.policies]", restart: "[]"},
		{name: "tenants", inUse: "scheduling: {tenants: [{name: a, users: [u]}]}\n", again: "scheduling: {tenants: [{name: a, users: [u, v]}]}\n",
			taken: "[scheduling.tenants]", restart: "[]"},
		{name: "back again", inUse: "scheduling: {policy: slot}\n", taken: "[scheduling.policy]", restart: "[]"},
		{name: "the same twice", inUse: "scheduling: {policy: slot}\n", again: "scheduling: {policy: slot}\n", taken: "[]", restart: "[]"},
		{name: "other keys", inUse: "users: {min_uid: 500}\n", again: "users: {min_uid: 500}\nscheduling: {max_shares: 2}\nlog: {level: debug}\n",
			taken: "[]", restart: "[users.min_uid scheduling.max_shares log.level]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken, restart := config.Changes(first, load(c.inUse), load(c.again))
			if fmt.Sprint(taken) != c.taken || fmt.Sprint(restart) != c.restart {
				t.Errorf("taken %v, restart %v; want %s and %s", taken, restart, c.taken, c.restart)
			}
		})
	}
}
