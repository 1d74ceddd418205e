// Package hostnames formats many host names as one short text, keeping their order.
package hostnames

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// foldRun is names with the same text before their final number, as one item of a
// host list. It has no numbers for a single name taken literally.
type foldRun struct {
	prefix string
	nums   []string
}

// Fold formats node names as a host list, gpu[01-03],login1. Adjacent names that
// differ only in an increasing final number are folded, so that the list names the
// nodes in the given order.
func Fold[S ~string](names []S) string {
	var runs []foldRun
	for _, name := range names {
		prefix, num := cutNumber(string(name))
		if k := len(runs) - 1; k >= 0 && num != "" && len(runs[k].nums) > 0 && runs[k].prefix == prefix && byNumber(runs[k].nums[len(runs[k].nums)-1], num) < 0 {
			runs[k].nums = append(runs[k].nums, num)
			continue
		}
		runs = append(runs, newFoldRun(prefix, num))
	}
	return joinRuns(runs)
}

// FoldSet formats node names as the host list that Slurm shows for a set,
// n[1-3,07],login: names with the same text before their final number are grouped,
// in the order of the first of each, with increasing numbers.
func FoldSet[S ~string](names []S) string {
	var runs []foldRun
	for _, name := range names {
		prefix, num := cutNumber(string(name))
		i := slices.IndexFunc(runs, func(r foldRun) bool { return num != "" && len(r.nums) > 0 && r.prefix == prefix })
		if i < 0 {
			runs = append(runs, newFoldRun(prefix, num))
			continue
		}
		runs[i].nums = append(runs[i].nums, num)
	}
	for i := range runs {
		slices.SortFunc(runs[i].nums, byNumber)
		runs[i].nums = slices.Compact(runs[i].nums)
	}
	return joinRuns(runs)
}

func newFoldRun(prefix, num string) foldRun {
	if num == "" {
		return foldRun{prefix: prefix}
	}
	return foldRun{prefix, []string{num}}
}

// maxFoldDigits is the maximum length of a number in brackets for ParseHostList.
const maxFoldDigits = 9

// cutNumber splits a name before its final digits. A number that is too long for
// brackets stays in the text.
func cutNumber(name string) (prefix, num string) {
	i := len(name)
	for i > 0 && '0' <= name[i-1] && name[i-1] <= '9' {
		i--
	}
	if len(name)-i > maxFoldDigits {
		return name, ""
	}
	return name[:i], name[i:]
}

func numberOf(num string) int {
	n, _ := strconv.Atoi(num) // cutNumber returns only digits
	return n
}

// byNumber orders numbers by value, then by width.
func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(numberOf(a), numberOf(b)), cmp.Compare(len(a), len(b)))
}

// joinRuns joins runs, with their numbers in as few ranges as possible.
func joinRuns(runs []foldRun) string {
	items := make([]string, len(runs))
	for i, r := range runs {
		switch len(r.nums) {
		case 0:
			items[i] = r.prefix
		case 1:
			items[i] = r.prefix + r.nums[0]
		default:
			items[i] = r.prefix + "[" + ranges(r.nums) + "]"
		}
	}
	return strings.Join(items, ",")
}

// ranges formats increasing numbers: 1-3,5,07-08.
func ranges(nums []string) string {
	var out []string
	for i := 0; i < len(nums); {
		k := i + 1
		for k < len(nums) && numberOf(nums[k]) == numberOf(nums[k-1])+1 && sameRange(nums[k-1], nums[k]) {
			k++
		}
		if k-i == 1 {
			out = append(out, nums[i])
		} else {
			out = append(out, nums[i]+"-"+nums[k-1])
		}
		i = k
	}
	return strings.Join(out, ",")
}

// sameRange reports whether a range with zero padding like a's extends to b.
func sameRange(a, b string) bool {
	return len(a) == len(b) || a[0] != '0' && b[0] != '0'
}
