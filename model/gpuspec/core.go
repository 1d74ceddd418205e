package gpuspec

// Core is what one core of a server's processor does, for runs without a GPU.
type Core struct {
	// GHz is the clock that it holds with all cores busy, FLOPsPerCycle the FP32
	// operations that it ends in one cycle: their product is its peak.
	GHz, FLOPsPerCycle float64
	// Efficiency is how much of the peak the matrix products of deep-learning
	// frameworks reach.
	Efficiency float64
	// BandwidthGBs is its part of the sockets' memory bandwidth, SocketsGBs what
	// all cores of a node have together.
	BandwidthGBs, SocketsGBs float64
	// Watt is its part of the processor's power limit and of the memory beside.
	Watt float64
}

// OneCore returns the figures of a server of the years 2020 to 2023, on the
// slow side: 2.4 GHz, two fused multiply-add units of eight lanes (AVX2), half
// of the resulting 77 GFLOPS reached, 4 GB/s, 6 W. They lie between an EPYC
// 7763 (64 cores, 2.45 GHz, 280 W, 204.8 GB/s) and a Xeon Platinum 8380 (40
// cores, 2.3 GHz, 270 W, 204.8 GB/s), of two sockets each. Agents do not tell
// what their processors are; what runs took corrects these figures job by job.
func OneCore() Core {
	return Core{GHz: 2.4, FLOPsPerCycle: 32, Efficiency: 0.5, BandwidthGBs: 4, SocketsGBs: 300, Watt: 6}
}

// FLOPS is what so many cores sustain, in FP32 operations a second.
func (c Core) FLOPS(cores float64) float64 {
	return cores * c.GHz * 1e9 * c.FLOPsPerCycle * c.Efficiency
}

// Bandwidth is what so many cores have together, in bytes a second.
func (c Core) Bandwidth(cores float64) float64 {
	return min(cores*c.BandwidthGBs, c.SocketsGBs) * 1e9
}
