package graph

import "slices"

// Kind is what an Event does.
type Kind uint8

// The kinds of events.
const (
	Alloc Kind = iota + 1
	Free
	Compute
)

// Event is one action of a training or inference process on the GPU.
type Event struct {
	Kind   Kind
	Tensor int32 // the block of Alloc and Free
	Bytes  int64 // size of the block
	FLOPs  int64 // of Compute
	Moved  int64 // bytes that Compute reads and writes
}

// tracer plays one step. It models PyTorch's behaviour (what autograd keeps, when
// it frees, cuBLAS's workspace) and uses none of the predictor's formulas.
type tracer struct {
	p      *plan
	ev     []Event
	next   int32
	live   map[int32]int64 // block -> bytes
	block  map[int32]int32 // root tensor -> block
	grad   map[int32]int32 // root tensor -> block of its gradient
	saved  map[int32]int   // root tensor -> steps of the backward pass that still need it
	masks  map[int]int32   // step -> block of its mask
	cublas bool
}

// cublasWorkspace is PyTorch's default of CUBLAS_WORKSPACE_CONFIG, allocated
// at the first matrix product and kept: 8 blocks of 16 KiB and 2 of 4 MiB.
const cublasWorkspace = 2*4096<<10 + 8*16<<10

// Trace returns the events of one step of g, in execution order: weights, gradients
// and optimizer states first, then the forward pass, and for training the backward
// pass and the update. The errors are those of opt. Replay it with Peak, or with
// another allocator.
func Trace(g *Graph, opt Options) ([]Event, error) {
	p, err := newPlan(g, opt)
	if err != nil {
		return nil, err
	}
	t := &tracer{
		p: p, live: map[int32]int64{}, block: map[int32]int32{}, grad: map[int32]int32{},
		saved: map[int32]int{}, masks: map[int]int32{},
	}
	t.setup()
	t.forward()
	if opt.Training {
		t.loss()
		t.backward()
		t.update()
	}
	return t.ev, nil
}

func (t *tracer) alloc(bytes int64) int32 {
	t.next++
	t.live[t.next] = bytes
	t.ev = append(t.ev, Event{Kind: Alloc, Tensor: t.next, Bytes: bytes})
	return t.next
}

func (t *tracer) free(block int32) {
	bytes, ok := t.live[block]
	if !ok {
		return
	}
	delete(t.live, block)
	t.ev = append(t.ev, Event{Kind: Free, Tensor: block, Bytes: bytes})
}

func (t *tracer) compute(flops, moved int64) {
	t.ev = append(t.ev, Event{Kind: Compute, FLOPs: flops, Moved: moved})
}

// setup allocates what lives as long as the process, parameter by parameter.
func (t *tracer) setup() {
	each := func(op string, times int64) {
		for i := range t.p.tensors {
			w := &t.p.tensors[i]
			if w.bytes > 0 && (w.role == roleWeight || (w.role == roleBuffer && op == "weights")) {
				for range times {
					t.alloc(w.bytes)
				}
			}
		}
	}
	each("weights", 1)
	if t.p.opt.Training {
		each("gradients", 1)
		each("optimizer", t.p.opt.Optimizer.States())
	}
	if t.p.opt.Precision == AMP { // autocast keeps a two-byte copy of each weight
		for i := range t.p.tensors {
			if w := &t.p.tensors[i]; w.role == roleWeight {
				t.alloc(w.bytes / 2)
			}
		}
	}
	for i := range t.p.tensors {
		if x := &t.p.tensors[i]; x.role == roleInput {
			t.block[int32(i)] = t.alloc(x.bytes)
		}
	}
}

func (t *tracer) forward() {
	p := t.p
	last := p.lastUse()
	if p.opt.Training {
		for i := range p.steps {
			for _, r := range p.steps[i].saved {
				t.saved[r]++
			}
		}
	}
	dying := make([][]int32, len(p.steps))
	for id, at := range last {
		dying[at] = append(dying[at], id)
	}
	for i := range p.steps {
		s := &p.steps[i]
		for _, id := range s.out {
			if p.tensors[id].root == id && p.act(id) {
				t.block[id] = t.alloc(p.tensors[id].bytes)
			}
		}
		if p.opt.Training && s.mask > 0 {
			t.masks[i] = t.alloc(s.mask)
		}
		t.run(s, 1)
		slices.Sort(dying[i]) // map order must not show
		for _, id := range dying[i] {
			if t.saved[id] == 0 && p.tensors[id].role != roleInput {
				t.free(t.block[id])
			}
		}
	}
}

// run is one kernel of the forward (times 1) or backward pass (times 2), with
// its scratch memory.
func (t *tracer) run(s *step, times int64) {
	if s.rule.view {
		return
	}
	ws := t.scratch(s)
	var block int32
	if ws > 0 {
		block = t.alloc(ws)
	}
	if s.rule.class == ClassLinear && !t.cublas {
		t.cublas = true
		t.alloc(cublasWorkspace)
	}
	t.compute(satMul(s.flops, times), satMul(t.p.moved(s), times))
	if ws > 0 {
		t.free(block)
	}
}

// scratch is the workspace of the algorithm cuDNN would likely pick: for 3×3
// convolutions of stride 1 with enough channels non-fused Winograd F(4,3),
// whose transformed tiles are 36/16 of input and output; else tiles of an
// implicit matrix product, one slice of the batch at a time.
func (t *tracer) scratch(s *step) int64 {
	c := s.conv
	if c == nil || c.groups > 1 || c.kernel <= 1 {
		return 0
	}
	elem := t.p.opt.Precision.ActivationBytes(4)
	if c.square3 && c.cin >= 16 && c.cout >= 16 {
		tiles := satAdd(satMul(c.cin, c.in), satMul(c.cout, c.out))
		filter := satMul(satMul(c.cin, c.cout), 36)
		full := satMul(satAdd(satMul(satMul(c.batch, tiles)/4, 9), filter), elem)
		if full <= 1<<30 {
			return full
		}
	}
	slice := satMul(satMul(c.cin, c.kernel), satMul(c.out, elem))
	return min(satMul(slice, min(c.batch, 8)), 256<<20)
}

// loss is cross entropy over the outputs: its log-softmax is kept, and its gradient
// starts the backward pass.
func (t *tracer) loss() {
	for i := range t.p.g.Outputs {
		id, ok := t.p.names[t.p.g.Outputs[i].Name]
		if !ok {
			continue
		}
		r := t.p.rootAct(id)
		if r < 0 || t.p.tensors[r].role == roleInput {
			continue
		}
		bytes := t.p.tensors[r].bytes
		kept := t.alloc(bytes)
		t.compute(t.p.tensors[r].elems(), satMul(2, bytes))
		if _, ok := t.grad[r]; !ok {
			t.grad[r] = t.alloc(bytes)
		}
		t.free(kept)
	}
}

// backward runs the steps in reverse. A gradient is allocated when the first step
// that used the tensor is undone, and freed when the step that made it is.
func (t *tracer) backward() {
	p := t.p
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := &p.steps[i]
		for _, id := range s.in {
			r := p.rootAct(id)
			if r < 0 || p.tensors[r].role == roleInput || !p.tensors[r].dtype.IsFloat() {
				continue
			}
			if _, ok := t.grad[r]; !ok {
				t.grad[r] = t.alloc(p.tensors[r].bytes)
			}
		}
		t.run(s, 2)
		if m, ok := t.masks[i]; ok {
			t.free(m)
		}
		for _, id := range s.out {
			if g, ok := t.grad[id]; ok && p.tensors[id].root == id {
				t.free(g)
			}
		}
		for _, r := range s.saved {
			if t.saved[r]--; t.saved[r] == 0 && p.tensors[r].role != roleInput {
				t.free(t.block[r])
			}
		}
	}
}

// update is the optimizer's step, whose fused form needs the largest
// parameter's size once more.
func (t *tracer) update() {
	var largest, all int64
	for i := range t.p.tensors {
		if w := &t.p.tensors[i]; w.role == roleWeight {
			largest = max(largest, w.bytes)
			all = satAdd(all, w.bytes)
		}
	}
	if largest == 0 {
		return
	}
	tmp := t.alloc(largest)
	states := t.p.opt.Optimizer.States()
	t.compute(satMul(all/4, 2+4*states), satMul(all, 3+2*states))
	t.free(tmp)
}
