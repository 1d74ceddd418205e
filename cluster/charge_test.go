package cluster

import (
	"testing"
	"time"
)

func TestShareMilli(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		share    Share
		sellable int64
		want     int64
	}{
		{"alone", Share{MemMiB: 100, Milli: 1000, Exclusive: true}, 100, 1000},
		{"memory is more", Share{MemMiB: 500, Milli: 200}, 1000, 500},
		{"compute is more", Share{MemMiB: 100, Milli: 200}, 1000, 200},
		{"rounded up", Share{MemMiB: 1, Milli: 1}, 3, 334},
		{"card is gone", Share{MemMiB: 500, Milli: 200}, 0, 200},
		{"more than the card has now", Share{MemMiB: 2000, Milli: 200}, 1000, 1000},
		{"nothing is something", Share{}, 1000, 1},
	} {
		if got := ShareMilli(c.share, c.sellable); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestCharge(t *testing.T) {
	t.Parallel()
	const start, now = Time(1_000_000_000), Time(4_600_000_000) // an hour
	gpu := func(milli int64) Berth {
		return Berth{GPUs: []GPUShare{{GPU: "g", Share: Share{Milli: milli}}}, CPUMilli: 4000}
	}
	gang := Attempt{Berth: gpu(1000), GPUMilli: 2000, Gang: &Gang{Rest: []Berth{gpu(1000)}, Parts: []Part{
		{Started: start, Ended: start.Add(30 * time.Minute)}, {Started: start},
	}}}
	for _, c := range []struct {
		name string
		a    Attempt
		want Charge
	}{
		{"whole GPU", Attempt{Berth: gpu(1000), GPUMilli: 1000, Started: start}, Charge{GPU: time.Hour}},
		{"half a GPU", Attempt{Berth: gpu(100), GPUMilli: 500, Started: start}, Charge{GPU: 30 * time.Minute}},
		{"two GPUs, ended", Attempt{Berth: gpu(1000), GPUMilli: 2000, Started: start, Ended: start.Add(time.Minute)}, Charge{GPU: 2 * time.Minute}},
		{"placed before shares were kept", Attempt{Berth: gpu(250), Started: start}, Charge{GPU: 15 * time.Minute}},
		{"never started", Attempt{Berth: gpu(1000), GPUMilli: 1000, Placed: start, Ended: now}, Charge{}},
		{"cores", Attempt{Berth: Berth{CPUMilli: 2500}, Started: start}, Charge{Core: 150 * time.Minute}},
		{"a part ended before the other", gang, Charge{GPU: 90 * time.Minute}},
		{"clock behind its start", Attempt{Berth: gpu(1000), GPUMilli: 1000, Started: now.Add(time.Hour)}, Charge{}},
	} {
		if got := c.a.Charge(now); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	a := Attempt{Berth: gpu(1000), GPUMilli: 1000, Started: start}
	j := Job{Attempts: []Attempt{a, a}}
	if got := j.Charge(now); got != (Charge{GPU: 2 * time.Hour}) {
		t.Errorf("two attempts: %+v", got)
	}
}
