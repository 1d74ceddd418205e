package tty_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-scheduler/berth/cmd/internal/tty"
)

// TestTerminal: a terminal of our own has the size that it was given, passes keys on at
// once while it is raw, and is afterwards what it was; a file is none.
func TestTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	defer master.Close()
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 91, Row: 27}); err != nil {
		t.Fatal(err)
	}
	if w, h, err := tty.Size(f); w != 91 || h != 27 || err != nil || !tty.Is(f) {
		t.Errorf("%d x %d, %v; a terminal: %t", w, h, err, tty.Is(f))
	}
	was, _ := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	restore, err := tty.Raw(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := master.Write([]byte{3}); err != nil { // no line end, and no signal
		t.Fatal(err)
	}
	var b [1]byte
	if n, err := f.Read(b[:]); n != 1 || b[0] != 3 || err != nil {
		t.Errorf("a key: %d %v %v", n, b, err)
	}
	restore()
	if now, _ := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); *now != *was {
		t.Errorf("afterwards it is %+v, before it was %+v", now, was)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, _, err := tty.Size(null); err == nil || tty.Is(null) {
		t.Error("/dev/null is a terminal")
	}
	if _, err := tty.Raw(null); err == nil {
		t.Error("/dev/null is made raw")
	}
}
