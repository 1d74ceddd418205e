package jobcmd

import "strconv"

// niceText is "" for most jobs, which step back behind nobody.
func niceText(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}
