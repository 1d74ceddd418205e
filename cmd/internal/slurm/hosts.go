package slurm

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-scheduler/berth/cluster"
)

// Fold writes names of nodes as Slurm does: n[1-3,07],login. Names with
// the same text before their last number stand together, in the order of the
// first of each.
func Fold(names []string) string {
	type run struct {
		prefix string
		nums   []string
	}
	var runs []*run
	for _, name := range names {
		prefix, num := cutNumber(name)
		i := slices.IndexFunc(runs, func(r *run) bool { return r.prefix == prefix && (len(r.nums) > 0) == (num != "") })
		if i < 0 || num == "" {
			runs = append(runs, &run{prefix: prefix})
			i = len(runs) - 1
		}
		if num != "" {
			runs[i].nums = append(runs[i].nums, num)
		}
	}
	out := make([]string, len(runs))
	for i, r := range runs {
		switch len(r.nums) {
		case 0:
			out[i] = r.prefix
		case 1:
			out[i] = r.prefix + r.nums[0]
		default:
			out[i] = r.prefix + "[" + ranges(r.nums) + "]"
		}
	}
	return strings.Join(out, ",")
}

// cutNumber parts a name before the digits that it ends with. Numbers that
// are too long to count with stay in the text.
func cutNumber(name string) (prefix, num string) {
	i := len(name)
	for i > 0 && '0' <= name[i-1] && name[i-1] <= '9' {
		i--
	}
	if len(name)-i > 18 {
		return name, ""
	}
	return name[:i], name[i:]
}

// ranges writes numbers of one width after the other, each as few ranges as
// will do: 1-3,5,07-08.
func ranges(nums []string) string {
	slices.SortFunc(nums, func(a, b string) int { return cmp.Or(cmp.Compare(value(a), value(b)), cmp.Compare(len(a), len(b))) })
	nums = slices.Compact(nums)
	var out []string
	for i := 0; i < len(nums); {
		k := i + 1
		for k < len(nums) && value(nums[k]) == value(nums[k-1])+1 && follows(nums[k-1], nums[k]) {
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

// follows tells whether a range that is filled with zeros like a goes on to b.
func follows(a, b string) bool {
	return len(a) == len(b) || a[0] != '0' && b[0] != '0'
}

func value(num string) int64 {
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil {
		return -1 // cutNumber leaves no such number
	}
	return n
}

// Unfold reads a host list, as partitions take it; "" and ALL are no names.
func Unfold(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	h, err := cluster.ParseHostList(list)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(h.Names()))
	for i, n := range h.Names() {
		names[i] = string(n)
	}
	return names, nil
}
