package jobcmd

import "strconv"

// niceText returns "" for most jobs, which have no nice value.
func niceText(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}
