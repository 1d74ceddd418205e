package gpu

import "testing"

func TestOffer(t *testing.T) {
	t.Parallel()
	card := &Card{UUID: "GPU-5b1c0a3f-1111", Index: 4, PCI: "00000000:3B:00.0"}
	for name, tc := range map[string]struct {
		offer Offer
		want  bool
	}{
		"all":                {nil, true},
		"its index":          {Offer{"4"}, true},
		"a range":            {Offer{"0-2", "3-5"}, true},
		"another index":      {Offer{"3", "40"}, false},
		"its UUID":           {Offer{"gpu-5B1C0A3F-1111"}, true},
		"a part of its UUID": {Offer{"GPU-5b1c0a3f"}, false},
		"its address":        {Offer{"3b:00.0"}, true},
		"with the domain":    {Offer{"0000:3B:00.0"}, true},
		"another domain":     {Offer{"0001:3B:00.0"}, false},
		"another address":    {Offer{"3c:00.0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.offer.Holds(card); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
			for _, item := range tc.offer {
				if err := tc.offer.Check(item); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, item := range []string{"", "x", "-1", "5-2", "0-", "+1", "256", "a b c d", "GPU-1;rm", "GPU/12345"} {
		if err := (Offer{}).Check(item); err == nil {
			t.Errorf("%q is taken", item)
		}
	}
	if (Offer{"3b:00.0"}).Holds(&Card{Index: 3}) {
		t.Error("a card without an address is taken for another")
	}
}
