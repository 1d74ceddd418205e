package sruncmd

import (
	"bufio"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

func TestOwnerOf(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:22B8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:D431 0100007F:22B8 01 00000000:00000000 00:00000000 00000000  1001        0 2
   2: 0100007F:22B8 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 3
   3: 0000000000000000FFFF00000100007F:D432 0000000000000000FFFF00000100007F:22B8 01 00000000:00000000 00:00000000 00000000  1002        0 4
`
	at := func(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }
	for port, want := range map[int]int{0xD431: 1001, 0xD432: 1002, 0xD433: -1} {
		uid, found := ownerOf(bufio.NewScanner(strings.NewReader(table)), at(port), at(0x22B8))
		if found != (want >= 0) || found && uid != want {
			t.Errorf("port %x: %d %v, want %d", port, uid, found, want)
		}
	}
}

// TestOthersAreTurnedAway has a port of ours be some other user's to reach.
func TestOthersAreTurnedAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.DialTimeout("tcp", ln.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if !ofUser(far, os.Getuid()) {
		t.Error("our own connection is nobody's")
	}
	if os.Getuid() != 0 && ofUser(far, os.Getuid()+1) {
		t.Error("our connection is another user's")
	}
}

func TestListenAt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := listenAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if again, err := listenAt(path); err == nil || !strings.Contains(err.Error(), "already listens there") {
		t.Errorf("twice: %v %v", again, err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // as a program that dies
	ln.Close()
	if ln, err = listenAt(path); err != nil {
		t.Fatalf("one that was left: %v", err)
	}
	ln.Close()
	if err := os.WriteFile(path, []byte("a user's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ln, err = listenAt(path); err == nil {
		ln.Close()
		t.Error("a file is replaced")
	}
}

// TestLineNamesTheUser: by the variable, else by the account, never by its number.
func TestLineNamesTheUser(t *testing.T) {
	for _, c := range []struct{ variable, uid, want string }{
		{"ann", "31001", "ssh -N -L 8888:127.0.0.1:6006 ann@vm"},
		{"", "0", "ssh -N -L 8888:127.0.0.1:6006 root@vm"},
		{"", "31001", "ssh -N -L 8888:127.0.0.1:6006 YOUR-NAME@vm"},
	} {
		e := &console.Env{
			Hostname: func() (string, error) { return "vm", nil }, Getenv: func(string) string { return c.variable },
			User: func() string { return c.uid }, Accounts: console.Accounts{UserID: func(uid string) (*user.User, error) {
				if uid == "0" {
					return &user.User{Uid: uid, Username: "root"}, nil
				}
				return nil, user.UnknownUserIdError(31001)
			}},
		}
		if got := (&localEnd{port: 6006}).line(e, 8888); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
