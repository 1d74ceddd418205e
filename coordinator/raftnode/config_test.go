package raftnode

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestTimingValidate(t *testing.T) {
	t.Parallel()
	s, ms := time.Second, time.Millisecond
	for _, tc := range []struct {
		name string
		t    Timing
		want []string // each part of the error, none for no error
	}{
		{"default", DefaultTiming(), nil},
		{"fast", FastTiming(), nil},
		{"of these tests", testTiming(), nil},
		{"election below heartbeat", Timing{2 * s, s, s, ms}, []string{"election_timeout: 1s is below heartbeat_timeout (2s)"}},
		{"lease above heartbeat", Timing{s, s, 2 * s, ms}, []string{"leader_lease_timeout: 2s is above heartbeat_timeout (1s)"}},
		{"too slow to promise anything", Timing{61 * s, 62 * s, s, ms}, []string{"heartbeat_timeout: 1m1s is outside 50ms to 1m0s", "election_timeout: 1m2s"}},
		{"all wrong", Timing{ms, 0, s, 0}, []string{"heartbeat_timeout: 1ms", "election_timeout: 0s", "leader_lease_timeout: 1s is above", "commit_timeout: 0s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			requireParts(t, tc.t.Validate(), tc.want)
		})
	}
}

func TestConfigValidate(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{
			Dir: "/d", ClusterID: "c", ID: "a", Advertise: "h:1", StreamLayer: &tcpLayer{}, FSM: &listFSM{},
			Log: slog.New(slog.DiscardHandler), Fatal: func(error) {},
			Bootstrap: []Server{{"a", "h:1"}, {"b", "h:2"}},
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"good", func(*Config) {}, nil},
		{"no bootstrap", func(c *Config) { c.Bootstrap = nil }, nil},
		{"empty", func(c *Config) { *c = Config{} }, []string{"dir: missing", "cluster_id: missing", "\nid: missing", "stream_layer: missing", "fsm: missing", "log: missing", "fatal: missing", `advertise: "" is not host:port`}},
		{"unspecified address", func(c *Config) { c.Advertise, c.Bootstrap = "0.0.0.0:1", nil }, []string{"unspecified"}},
		{"ranges", func(c *Config) { c.MaxAppendEntries, c.MaxEntryBytes, c.StallLimit = 2000, -1, time.Second }, []string{"max_append_entries: 2000 is outside 1 to 1024", "max_entry_bytes: -1", "stall_limit: 1s is outside 2s to 1m"}},
		{"not in the list", func(c *Config) { c.Bootstrap = c.Bootstrap[1:] }, []string{`this node, "a", is not in the list`}},
		{"other address in the list", func(c *Config) { c.Bootstrap[0].Addr = "h:9" }, []string{`"h:9" is not what this node advertises, "h:1"`}},
		{"twice", func(c *Config) { c.Bootstrap = append(c.Bootstrap, c.Bootstrap[1], Server{}) }, []string{`bootstrap[2].id: "b" is there twice`, `bootstrap[2].addr: "h:2" is there twice`, "bootstrap[3].id: missing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := good()
			tc.change(&c)
			requireParts(t, c.Validate(), tc.want)
		})
	}
}

func requireParts(t *testing.T, err error, want []string) {
	t.Helper()
	if (err != nil) != (len(want) > 0) {
		t.Fatalf("error %v, want %q", err, want)
	}
	for _, w := range want {
		if !strings.Contains(" "+err.Error(), w) {
			t.Errorf("error lacks %q:\n%v", w, err)
		}
	}
}
