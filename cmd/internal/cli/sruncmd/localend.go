package sruncmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
)

// localOptions say where a tunnel begins on this machine.
type localOptions struct {
	// socket is a path, listen a port of 127.0.0.1; if neither, a socket of our
	// own is used.
	socket, listen string
	// own is the port on the user's own machine, for the printed command.
	own int
}

func (o *localOptions) register(fs *pflag.FlagSet, own int) {
	fs.StringVar(&o.socket, "socket", "", "local socket `PATH` to listen on, instead of one in $XDG_RUNTIME_DIR or /tmp")
	fs.StringVar(&o.listen, "listen", "", "listen on this `PORT` of 127.0.0.1, for a browser on this machine; 0 picks a free one")
	fs.IntVar(&o.own, "local-port", own, "`PORT` on your own machine where the tunnel starts")
}

func (o *localOptions) check() error {
	if o.own < 1 || o.own > 65535 {
		return console.Usagef("--local-port %d: want 1 to 65535", o.own)
	}
	if o.listen == "" {
		return nil
	}
	if n, err := strconv.Atoi(o.listen); err != nil || n < 0 || n > 65535 {
		return console.Usagef("--listen %s: want a port from 1 to 65535, or 0 for a free one", console.ShortQuote(o.listen))
	}
	if o.socket != "" {
		return console.Usagef("--listen and --socket: give only one of them")
	}
	return nil
}

// localEnd is where a tunnel begins. Only its user and root may connect.
type localEnd struct {
	net.Listener
	// path is a socket's; port is not 0 otherwise.
	path string
	port int
}

// open listens; name is that of a socket of our own.
func (o *localOptions) open(e *console.Env, name string) (*localEnd, error) {
	if o.listen != "" {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", o.listen))
		if err != nil {
			return nil, fmt.Errorf("--listen %s: %w", o.listen, err)
		}
		return &localEnd{Listener: ln, port: ln.Addr().(*net.TCPAddr).Port}, nil
	}
	path := o.socket
	if path == "" {
		dir, err := ownDir(e)
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, name)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	ln, err := listenAt(path)
	if err != nil {
		return nil, err
	}
	return &localEnd{Listener: ln, path: path}, nil
}

// ownDir returns a directory that only its user may enter.
func ownDir(e *console.Env) (string, error) {
	dir := e.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), ".berth-"+strconv.Itoa(os.Getuid()))
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("directory for sockets: %w", err)
		}
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("directory for sockets: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || !st.IsDir() || int(sys.Uid) != os.Getuid() || st.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not a directory that only you can enter; choose another with --socket", dir)
	}
	return dir, nil
}

// listenAt creates a socket that only its user may open. One left by a dead
// program is replaced.
func listenAt(path string) (net.Listener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket != 0 {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close() // nothing was sent
			return nil, fmt.Errorf("%s: a tunnel already listens there; end it, or choose another with --socket", path)
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("replace a stale socket: %w", err)
			}
		}
	}
	// Linux gives the file the mode of the socket, so it has that from the start.
	conf := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var merr error
		err := raw.Control(func(fd uintptr) { merr = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, merr)
	}}
	ln, err := conf.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return ln, nil
}

// Accept implements net.Listener: on a port, which every user of this machine
// can reach, it closes connections of others.
func (l *localEnd) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || l.path != "" || ofUser(c, os.Getuid()) {
			return c, err
		}
		_ = c.Close() // nothing was sent
	}
}

// ofUser reports whether the other end of a local connection belongs to a
// user, or to root.
func ofUser(c net.Conn, uid int) bool {
	near, ok1 := c.LocalAddr().(*net.TCPAddr)
	far, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return false
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		owner, found := ownerOf(bufio.NewScanner(f), far, near)
		f.Close()
		if found {
			return owner == uid || owner == 0
		}
	}
	return false
}

// ownerOf finds, in the kernel's table of connections, the user of the end
// whose own address is local. The addresses are in 127.0.0.0/8; a program
// that uses IPv6 has them mapped.
func ownerOf(table *bufio.Scanner, local, remote *net.TCPAddr) (uid int, found bool) {
	hex := func(a *net.TCPAddr) string {
		ip := a.IP.To4()
		if ip == nil {
			return "none"
		}
		return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
	}
	from, to := hex(local), hex(remote)
	for table.Scan() {
		words := strings.Fields(table.Text())
		if len(words) > 7 && strings.HasSuffix(words[1], from) && strings.HasSuffix(words[2], to) {
			uid, err := strconv.Atoi(words[7])
			return uid, err == nil
		}
	}
	return 0, false
}

// line returns the command that connects the user's own machine to this end.
func (l *localEnd) line(e *console.Env, own int) string {
	host, err := e.Hostname()
	if err != nil {
		host = "LOGIN-HOST"
	}
	user := e.Getenv("USER")
	if account, err := e.Accounts.UserID(e.User()); user == "" && err == nil {
		user = account.Username
	}
	user = cmp.Or(user, "YOUR-NAME")
	to := l.path
	if l.path == "" {
		to = net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port))
	}
	return fmt.Sprintf("ssh -N -L %d:%s %s@%s", own, to, console.Escape(user), console.Escape(host))
}
