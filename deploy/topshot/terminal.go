package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"
)

// patience is how long berth top may take to react to a key.
const patience = 30 * time.Second

// terminal is berth top on a pseudo-terminal, and its screen.
type terminal struct {
	master *os.File
	mu     sync.Mutex // guards screen
	screen *vt.Emulator
}

// shoot runs berth top, watches for a while, and draws it.
func shoot(berth string, watch time.Duration) ([]byte, error) {
	term, tty, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer term.master.Close()
	cmd := as(exec.Command(berth, "top", "--tab", "gpus"), people[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "COLORTERM=", "LANG=C.UTF-8", "LC_ALL=", "NO_COLOR=")
	err = cmd.Start()
	tty.Close()
	if err != nil {
		return nil, err
	}
	go term.show()
	go term.answer()
	picture, err := term.picture(watch)
	_, typed := term.master.WriteString("q")
	return picture, errors.Join(err, typed, cmd.Wait())
}

// picture opens the details of the fourth GPU, waits for its curves, and draws.
func (term *terminal) picture(watch time.Duration) ([]byte, error) {
	if err := term.await("USED/GIVEN"); err != nil {
		return nil, err
	}
	if _, err := term.master.WriteString("jjj\r"); err != nil {
		return nil, err
	}
	if err := term.await("GPU n1/3"); err != nil {
		return nil, err
	}
	time.Sleep(watch)
	term.mu.Lock()
	defer term.mu.Unlock()
	return draw(cells(term.screen), "berth top: the GPUs of a cluster, the memory that jobs were promised and use, and the curves of one card"), nil
}

// openTerminal opens a pseudo-terminal; tty is the end for a program.
func openTerminal() (term *terminal, tty *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo terminal: %w", err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, fmt.Errorf("open a pseudo terminal: %w", err)
	}
	return &terminal{master: master, screen: vt.NewEmulator(columns, rows)}, tty, nil
}

// show feeds the program's output to the screen until it ends.
func (term *terminal) show() {
	buf := make([]byte, 4096)
	for {
		n, err := term.master.Read(buf)
		term.mu.Lock()
		_, _ = term.screen.Write(buf[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// answer passes the terminal's replies to the program.
func (term *terminal) answer() {
	buf := make([]byte, 256)
	for {
		n, err := term.screen.Read(buf)
		if err != nil {
			return
		}
		_, _ = term.master.Write(buf[:n])
	}
}

// await waits until the screen shows a text.
func (term *terminal) await(text string) error {
	var shown string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		term.mu.Lock()
		shown = term.screen.String()
		term.mu.Unlock()
		if strings.Contains(shown, text) {
			return nil
		}
	}
	return fmt.Errorf("no %q on the terminal:\n%s", text, bytes.TrimSpace([]byte(shown)))
}
