package limit_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/coordinator/limit"
)

func TestWrongTokensAreCountedByAddress(t *testing.T) {
	now := time.Unix(1e9, 0)
	h := limit.NewHosts(func() time.Time { return now })
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	for i := range 30 {
		if !h.May(at("192.0.2.1")) {
			t.Fatalf("guess %d is turned away", i)
		}
		h.Wrong(at("192.0.2.1"))
		h.Wrong(at(fmt.Sprintf("2001:db8::%x", i+1)))
	}
	for ip, want := range map[string]bool{"192.0.2.1": false, "::ffff:192.0.2.1": false, "192.0.2.2": true, "2001:db8::ffff": false, "2001:db8:0:1::1": true} {
		if got := h.May(at(ip)); got != want {
			t.Errorf("%s may try: %t, want %t", ip, got, want)
		}
	}
	if now = now.Add(time.Second); !h.May(at("192.0.2.1")) {
		t.Error("turned away a second later")
	}
}

// TestWrongTokensOfManyAddresses: those for whom the table has no room share
// one count, until others are idle.
func TestWrongTokensOfManyAddresses(t *testing.T) {
	now := time.Unix(1e9, 0)
	h := limit.NewHosts(func() time.Time { return now })
	at := func(i int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i)), Port: 1} }
	for i := range 4096 + 30 {
		h.Wrong(at(i))
	}
	if h.May(at(60000)) {
		t.Error("an address beyond the table's size may try though others beyond it used up what they share")
	}
	if !h.May(at(1)) {
		t.Error("an address in the table is turned away for what others did")
	}
	now = now.Add(time.Minute)
	h.Wrong(at(60000))
	if !h.May(at(60001)) {
		t.Error("no room though all others are idle")
	}
}
