package cluster

import (
	"cmp"
	"slices"
)

// SpanLen is how many ranks spans hold.
func SpanLen(spans []Span) int {
	n := 0
	for _, s := range spans {
		n += s.To - s.From + 1
	}
	return n
}

// SpanHas reports whether a rank is among sorted spans.
func SpanHas(spans []Span, rank int) bool {
	_, ok := spanAt(spans, rank)
	return ok
}

// spanAt is the index of the span that holds rank, or would come after it.
func spanAt(spans []Span, rank int) (int, bool) {
	i, _ := slices.BinarySearchFunc(spans, rank, func(s Span, n int) int { return cmp.Compare(s.To, n) })
	return i, i < len(spans) && spans[i].From <= rank
}

// SpanAnd is the ranks that are in both.
func SpanAnd(a, b []Span) []Span {
	var out []Span
	for i, k := 0, 0; i < len(a) && k < len(b); {
		if from, to := max(a[i].From, b[k].From), min(a[i].To, b[k].To); from <= to {
			out = append(out, Span{from, to})
		}
		if a[i].To < b[k].To {
			i++
		} else {
			k++
		}
	}
	return out
}

// SpanSub is the ranks of a that are not in b.
func SpanSub(a, b []Span) []Span {
	var out []Span
	k := 0
	for _, s := range a {
		for k < len(b) && b[k].To < s.From {
			k++
		}
		for i := k; i < len(b) && b[i].From <= s.To; i++ {
			if b[i].From > s.From {
				out = append(out, Span{s.From, b[i].From - 1})
			}
			s.From = b[i].To + 1
		}
		if s.From <= s.To {
			out = append(out, s)
		}
	}
	return out
}

// SpanOr is the ranks that are in either.
func SpanOr(a, b []Span) []Span {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y Span) int { return cmp.Compare(x.From, y.From) })
	var out []Span
	for _, s := range all {
		if n := len(out); n > 0 && s.From <= out[n-1].To+1 {
			out[n-1].To = max(out[n-1].To, s.To)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// SpanFirst is at most n of the ranks, the least.
func SpanFirst(spans []Span, n int) []Span {
	for i, s := range spans {
		if k := s.To - s.From + 1; k < n {
			n -= k
			continue
		}
		out := slices.Clone(spans[:i+1])
		if n == 0 {
			return out[:i]
		}
		out[i].To = s.From + n - 1
		return out
	}
	return spans
}

// SpanRank is the k-th of the ranks, from 0, which must be below SpanLen.
func SpanRank(spans []Span, k int) int {
	for _, s := range spans {
		if n := s.To - s.From + 1; k >= n {
			k -= n
			continue
		}
		return s.From + k
	}
	panic("cluster: a rank that spans do not have")
}
