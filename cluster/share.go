package cluster

// WholeGPU is the compute of one whole GPU, in thousandths.
const WholeGPU = 1000

// Share is a slice of one GPU. An exclusive share is the whole card, and then
// MemMiB is its sellable memory and Milli is WholeGPU.
type Share struct {
	MemMiB    int64
	Milli     int64
	Exclusive bool
}

// GPUShare is a share of one particular GPU.
type GPUShare struct {
	GPU   GPUID
	Share Share
}

// Berth is where one attempt lies: a node, its shares there, and the host
// resources that go with them. GPUs is empty for a job that needs none, and
// sorted by id otherwise.
type Berth struct {
	Node     NodeID
	GPUs     []GPUShare
	CPUMilli int64
	MemMiB   int64
}
