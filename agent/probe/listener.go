package probe

import (
	"bufio"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// The socket tables of this node.
const (
	tcp4 = "/proc/net/tcp"
	tcp6 = "/proc/net/tcp6"
)

// listener returns who listens at a TCP port of this node that belongs to a user's replica:
// another user if one listens at an address by which others reach the node, or at 127.0.0.1,
// and the user if a connection to 127.0.0.1 reaches the user's own socket; there is false when
// nobody does. A replica that listens only at 127.0.0.1 leaves the node's other addresses to
// whoever takes them, along with the requests meant for it. six says whether others may come by
// IPv6.
func listener(uid uint32, port uint16, six bool) (owner uint32, there bool, err error) {
	four, err := listenersIn(tcp4, uid, port)
	if err != nil || four.another {
		return four.who, four.another, err
	}
	both, err := listenersIn(tcp6, uid, port)
	if err != nil || both.another && (six || !four.own) {
		return both.who, both.another, err
	}
	return uid, four.own || both.own, nil
}

// listeners describes the listeners at one port: whether one belongs to another user, who, and
// whether one of the user's own accepts connections to 127.0.0.1.
type listeners struct {
	another bool
	who     uint32
	own     bool
}

// listenersIn reads one table of proc_net(5): sl local rem st tx:rx tr:tm retr uid. Listening
// sockets come first: of a user's many connections, at most one is read.
func listenersIn(name string, uid uint32, port uint16) (out listeners, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // without IPv6
		return out, nil
	}
	if err != nil {
		return out, err
	}
	defer f.Close()
	const listens = "0A"
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) < 8 || w[0] == "sl" {
			continue
		}
		if w[3] != listens {
			break
		}
		hex, at, ok := strings.Cut(w[1], ":")
		addr, known := address(hex)
		if n, err := strconv.ParseUint(at, 16, 16); !ok || !known || err != nil || uint16(n) != port {
			continue
		}
		n, err := strconv.ParseUint(w[7], 10, 32)
		if err != nil {
			continue
		}
		near := addr.IsUnspecified() || addr == netip.AddrFrom4([4]byte{127, 0, 0, 1})
		switch {
		case uint32(n) == uid:
			out.own = out.own || near
		case near || !addr.IsLoopback():
			return listeners{another: true, who: uint32(n)}, nil
		}
	}
	return out, lines.Err()
}

// address parses an address as the kernel writes it: 32 bits at a time, each in hexadecimal
// with the lowest byte first. IPv4 within IPv6 becomes IPv4.
func address(hex string) (netip.Addr, bool) {
	if len(hex) != 8 && len(hex) != 32 {
		return netip.Addr{}, false
	}
	b := make([]byte, 0, 16)
	for ; hex != ""; hex = hex[8:] {
		n, err := strconv.ParseUint(hex[:8], 16, 32)
		if err != nil {
			return netip.Addr{}, false
		}
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap(), true
}
