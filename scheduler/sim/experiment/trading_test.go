package experiment

import "testing"

// TestTrading: accounts get more done with trades, and so does the one that gets least.
func TestTrading(t *testing.T) {
	t.Parallel()
	rep, err := trading(t.Context(), Config{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range rep.Claims {
		if !c.Met {
			t.Errorf("%s: %.2f, want %.2f", c.What, c.Got, c.Want)
		}
	}
	asBefore(t, rep)
}
