package slurm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// maxHosts bounds what one list may name.
const maxHosts = 65536

// Unfold reads what Fold writes, and any list of Slurm's: names in order,
// separated by commas, with numbers in brackets. The error says where it ends
// to be one.
func Unfold(list string) ([]string, error) {
	var out []string
	for list != "" {
		end, depth := len(list), 0
	scan:
		for i, c := range list {
			switch {
			case c == '[':
				depth++
			case c == ']':
				depth--
			case c == ',' && depth == 0:
				end = i
				break scan
			}
		}
		if depth != 0 {
			return nil, fmt.Errorf("%.80q: a bracket is not closed", list)
		}
		names, err := unfoldOne(list[:end])
		if err != nil {
			return nil, err
		}
		if out = append(out, names...); len(out) > maxHosts {
			return nil, fmt.Errorf("more than %d names", maxHosts)
		}
		list = strings.TrimPrefix(list[end:], ",")
	}
	return out, nil
}

func unfoldOne(s string) ([]string, error) {
	prefix, rest, ok := strings.Cut(s, "[")
	if !ok {
		if s == "" {
			return nil, nil
		}
		return []string{s}, nil
	}
	inside, tail, _ := strings.Cut(rest, "]")
	tails, err := unfoldOne(tail)
	if err != nil {
		return nil, err
	}
	if tails == nil {
		tails = []string{""}
	}
	var out []string
	for _, r := range strings.Split(inside, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.ParseUint(from, 10, 32)
		hi, err2 := strconv.ParseUint(to, 10, 32)
		if err != nil || err2 != nil || lo > hi || (hi-lo+1)*uint64(len(tails)) > maxHosts {
			return nil, fmt.Errorf("%.80q: %.40q is no range of numbers, such as 1-8", s, r)
		}
		for v := lo; v <= hi; v++ {
			for _, t := range tails {
				out = append(out, fmt.Sprintf("%s%0*d%s", prefix, len(from), v, t))
			}
		}
	}
	if len(out) > maxHosts {
		return nil, fmt.Errorf("more than %d names", maxHosts)
	}
	return out, nil
}
