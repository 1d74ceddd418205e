package limit_test

import (
	"net"
	"testing"
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
	conns := limit.NewConns(func(cluster.UID) int { return 2 }, 3, func(cluster.UID) time.Duration { return 0 })
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
