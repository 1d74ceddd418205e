package fit

import (
	"math"
	"strconv"
	"testing"
)

func TestUserCap(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		counts []float64
		want   float64 // for the largest user
	}{
		{"one user", []float64{5000}, 5000},
		{"few samples", []float64{18, 3}, 18},
		{"two users", []float64{5000, 400}, 400},
		{"equal users", []float64{500, 500, 500, 500, 500}, 500},
		{"one of many", []float64{10_000, 300, 300, 300, 300}, 400},
		{"two together", []float64{9000, 8000, 300, 300, 300, 300}, 600},
		{"never below twenty", []float64{5000, 10, 10}, 20},
	} {
		t.Run(tc.name, func(t *testing.T) {
			users := make(map[string]float64)
			for i, n := range tc.counts {
				users[strconv.Itoa(i)] = n
			}
			most := UserCap(users)
			if got := min(most, tc.counts[0]); math.Abs(got-tc.want) > 1e-9 {
				t.Fatalf("the largest user weighs %v, must weigh %v", got, tc.want)
			}
			all := 0.0
			for _, n := range tc.counts {
				all += min(most, n)
			}
			if share := tc.want / all; len(tc.counts) > 4 && tc.want > userLeast && share > userShare+1e-9 {
				t.Fatalf("the largest user has %v of the weight", share)
			}
		})
	}
}
