package gpuspec

// Core is the performance of one core of a server's processor, for runs without a
// GPU.
type Core struct {
	// GHz is the clock with all cores busy, FLOPsPerCycle the FP32 operations per
	// cycle: their product is the peak.
	GHz, FLOPsPerCycle float64
	// Efficiency is the fraction of the peak that matrix products of deep-learning
	// frameworks reach.
	Efficiency float64
	// BandwidthGBs is its part of the sockets' memory bandwidth, SocketsGBs the
	// total for all cores of a node.
	BandwidthGBs, SocketsGBs float64
	// Watt is its part of the power limit of the processor and its memory.
	Watt float64
}

// OneCore returns the figures of a server of the years 2020 to 2023, on the slow
// side: 2.4 GHz, two fused multiply-add units of eight lanes (AVX2), half of the
// resulting 77 GFLOPS reached, 4 GB/s, 6 W. They are between an EPYC 7763 (64
// cores, 2.45 GHz, 280 W, 204.8 GB/s) and a Xeon Platinum 8380 (40 cores, 2.3 GHz,
// 270 W, 204.8 GB/s), with two sockets each. Agents do not report their processors;
// measured runs correct these figures job by job.
func OneCore() Core {
	return Core{GHz: 2.4, FLOPsPerCycle: 32, Efficiency: 0.5, BandwidthGBs: 4, SocketsGBs: 300, Watt: 6}
}

// FLOPS returns what that many cores sustain, in FP32 operations per second.
func (c Core) FLOPS(cores float64) float64 {
	return cores * c.GHz * 1e9 * c.FLOPsPerCycle * c.Efficiency
}

// Bandwidth returns the bandwidth of that many cores together, in bytes per second.
func (c Core) Bandwidth(cores float64) float64 {
	return min(cores*c.BandwidthGBs, c.SocketsGBs) * 1e9
}
