package limit_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/coordinator/limit"
)

// TestConns: a connection too many is ended before a byte of it is read, and
// one that is closed makes room, once.
func TestConns(t *testing.T) {
	uid := cluster.UID(1001)
	conns := limit.NewConns(func(cluster.UID) int { return 2 }, 3, func(cluster.UID, int) time.Duration { return 0 })
	creds := conns.Credentials(insecure.NewCredentials(), func(credentials.AuthInfo) (cluster.UID, bool) { return uid, true }).Clone()
	enter := func() (net.Conn, error) {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		conn, _, err := creds.ServerHandshake(here)
		return conn, err
	}
	var open []net.Conn
	for range 2 {
		conn, err := enter()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	if _, err := enter(); err == nil {
		t.Error("a third of one user was let in")
	}
	uid = 1002
	if _, err := enter(); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := enter(); err == nil {
		t.Error("a fourth of all users was let in")
	}
	uid = 0
	if _, err := enter(); err != nil {
		t.Errorf("root: %v", err)
	}
	uid = 1001
	open[0].Close()
	open[0].Close()
	open[1].Close()
	if _, err := enter(); err != nil {
		t.Errorf("after they were closed: %v", err)
	}
	uid = 1003
	if _, err := enter(); err == nil {
		t.Error("closing twice made room twice")
	}
}

// TestWhatBecomesNoRequestIsCharged: of who sends megabytes that become no request,
// broken ones or parts, a megabyte a second is read; those of requests and of what
// follows them are not charged twice, and an administrator's are not at all.
func TestWhatBecomesNoRequestIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		tab := newTable(limit.Config{})
		send := func(who limit.Who, after func(*limit.Call)) (paused time.Duration) {
			for range 100 {
				c, err := tab.Begin(who, limit.Lasting)
				if err != nil {
					t.Fatal(err)
				}
				for range 4 {
					d := tab.Came(who.UID, mib)
					paused += d
					time.Sleep(d)
				}
				after(c)
				c.End()
			}
			return paused
		}
		if d := tab.Came(alice.UID, 100*mib); d != 0 {
			t.Errorf("a pause of %v of one who asked for nothing", d)
		}
		if d := send(alice, func(*limit.Call) {}); d < 380*time.Second || d > 384*time.Second {
			t.Errorf("400 MiB in pieces of broken requests were read in %v, want 384 s", d)
		}
		if d := send(bob, func(c *limit.Call) { _ = c.Arrived(100); c.Followed(4 * mib) }); d != 0 {
			t.Errorf("400 MiB that followed a request were delayed by %v", d)
		}
		for range 600 { // a megabyte a second for ten minutes, with what surrounds it
			c, err := tab.Begin(bob, limit.Plain)
			if err != nil {
				t.Fatal(err)
			}
			if d := tab.Came(bob.UID, mib+mib/10); d != 0 {
				t.Fatalf("requests were delayed by %v", d)
			}
			if err := c.Arrived(mib); err != nil {
				t.Fatal(err)
			}
			c.End()
			time.Sleep(time.Second)
		}
		if d := send(limit.Who{UID: 0, Admin: true}, func(*limit.Call) {}); d != 0 {
			t.Errorf("an administrator's were delayed by %v", d)
		}
	})
}
