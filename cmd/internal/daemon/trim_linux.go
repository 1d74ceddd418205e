package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// trim releases the pages of the program's own file that were mapped during
// its start: a daemon at rest uses a small part of a large program, and a
// page that is needed after all is found in the page cache. Only mappings
// that are not writable and none of whose pages was ever changed are touched.
func trim() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	var from, to uint64 // of the mapping that the current lines describe; 0 for others
	var errs []error
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) >= 5 && strings.Contains(fields[0], "-") {
			from, to = 0, 0
			if len(fields) >= 6 && fields[1][1] == '-' && fields[1][3] == 'p' && strings.Join(fields[5:], " ") == exe {
				from, to = span(fields[0])
			}
			continue
		}
		if to == 0 || len(fields) != 3 || fields[0] != "Anonymous:" {
			continue
		}
		if fields[1] == "0" {
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED); errno != 0 {
				errs = append(errs, fmt.Errorf("madvise %x-%x: %w", from, to, errno))
			}
		}
		from, to = 0, 0
	}
	return errors.Join(append(errs, sc.Err())...)
}

// span parses "FROM-TO" in hexadecimal; 0, 0 if invalid.
func span(s string) (from, to uint64) {
	a, b, _ := strings.Cut(s, "-")
	from, err := strconv.ParseUint(a, 16, 64)
	to, err2 := strconv.ParseUint(b, 16, 64)
	if err != nil || err2 != nil || to < from {
		return 0, 0
	}
	return from, to
}
