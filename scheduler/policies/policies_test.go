package policies_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/berth-scheduler/berth/cluster"
	"github.com/berth-scheduler/berth/scheduler/policies"
)

func must(t interface {
	Helper()
	Fatal(...any)
}, name string, opt policies.Options) policies.Policy {
	t.Helper()
	p, err := policies.New(name, opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, order, want, wrong string
	}{
		{name: "ffd", want: "ffd"},
		{name: "slot", want: "slot"},
		{name: "ffd", order: "sjf", want: "ffd+sjf"},
		{name: "fgd+qssf", want: "fgd+qssf"},
		{name: "fgd+qssf", order: "qssf", want: "fgd+qssf"},
		{name: "fgd", order: "fifo", want: "fgd"},
		{name: "fgd+fifo", want: "fgd"},
		{name: "fdg", wrong: `policy "fdg" is not known; the policies are bestfit, `},
		{name: "fgd+fast", wrong: `order "fast" of policy "fgd" is not known; the orders are `},
		{name: "fgd", order: "fast", wrong: `order "fast" of policy "fgd" is not known; the orders are `},
		{name: "fgd+", wrong: `order "" of policy "fgd" is not known`},
		{name: "fgd+sjf", order: "fifo", wrong: "name one order"},
		{name: "", wrong: `policy "" is not known`},
	} {
		t.Run(c.name+" "+c.order, func(t *testing.T) {
			t.Parallel()
			p, err := policies.New(c.name, policies.Options{Order: c.order})
			if c.wrong != "" {
				var e *cluster.Error
				if !errors.As(err, &e) || e.Code != cluster.CodeInvalid || !strings.Contains(e.Msg, c.wrong) {
					t.Fatalf("got %v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil || p.Name() != c.want {
				t.Fatalf("got %v, %v, want %s", p, err, c.want)
			}
		})
	}
}

func TestNamesAreSortedAndKnown(t *testing.T) {
	t.Parallel()
	if !slices.IsSorted(policies.Names()) || !slices.IsSorted(policies.Orders()) {
		t.Fatalf("not sorted: %v, %v", policies.Names(), policies.Orders())
	}
	for _, n := range policies.Names() {
		for _, o := range policies.Orders() {
			if p, err := policies.New(n, policies.Options{Order: o}); err != nil || !strings.HasPrefix(p.Name(), n) {
				t.Errorf("%s+%s: %v, %v", n, o, p, err)
			}
		}
	}
}
