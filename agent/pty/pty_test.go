package pty

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTerminal(t *testing.T) {
	t.Parallel()
	master, tty, err := Open(uint32(os.Getuid()))
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	defer master.Close()
	if err := Resize(master, 41, 132); err != nil {
		t.Fatal(err)
	}
	if rows, cols, err := size(tty); rows != 41 || cols != 132 || err != nil {
		t.Errorf("size %d×%d, %v", rows, cols, err)
	}
	if st, err := tty.Stat(); err != nil || st.Mode().Perm() != 0o600 && os.Getuid() == 0 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	cmd := exec.Command("/bin/sh", "-c", "stty size; tty; read line; echo got $line")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	if err := master.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for one := make([]byte, 1); !bytes.Contains(out, []byte("/dev/pts/")); out = append(out, one...) {
		if _, err := master.Read(one); err != nil {
			t.Fatalf("%v after %q", err, out)
		}
	}
	if _, err := io.WriteString(master, "hello\n"); err != nil { // its echo comes after what was printed
		t.Fatal(err)
	}
	rest, err := io.ReadAll(master)
	out = append(out, rest...)
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("read ends with %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if s := string(out); !strings.Contains(s, "41 132\r\n/dev/pts/") || !strings.Contains(s, "got hello\r\n") {
		t.Errorf("printed %q", s)
	}
}

func TestReadHasADeadline(t *testing.T) {
	t.Parallel()
	master, tty, err := Open(uint32(os.Getuid()))
	if err != nil {
		t.Skipf("no pseudo terminals here: %v", err)
	}
	defer master.Close()
	defer tty.Close()
	if err := master.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := master.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// size returns the size of a terminal.
func size(f *os.File) (rows, columns uint16, err error) {
	err = control(f, func(fd int) error {
		ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			rows, columns = ws.Row, ws.Col
		}
		return err
	})
	return rows, columns, err
}
