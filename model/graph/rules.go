package graph

import (
	"maps"
	"strings"
	"sync"
)

// Class is the kind of layer an operator counts as.
type Class uint8

// The classes of Summary's layer counts.
const (
	ClassOther Class = iota
	ClassConv
	ClassLinear
	ClassActivation
	ClassNorm
)

// saves is what autograd keeps of an operator until the backward pass, as PyTorch's
// derivatives.yaml states for the operator's usual kernel.
type saves uint8

const (
	savesNothing  saves = iota
	savesInput          // the first input
	savesInputs         // all inputs that are not weights
	savesOutput         // the first output
	savesFactors        // of a product, each factor whose other one needs a gradient
	savesQuotient       // of a division, both for the divisor's gradient, else the divisor
)

// rule is what the analysis knows of one operator.
type rule struct {
	class Class
	// infer sets the shapes and FLOPs; false means that it could not.
	infer func(*ctx) bool
	saves saves
	view  bool // outputs share the memory of the first input
	mask  func(*plan, *step) int64
}

// unknownRule is for unknown operators: what they keep is guessed on the safe side.
var unknownRule = rule{saves: savesInputs}

// lookupRule returns the rule of an operator of ONNX's own domain, or of a
// contributed one with the same name and meaning.
func lookupRule(n *Node) *rule {
	if !defaultDomain(n.Domain) && !strings.EqualFold(n.Domain, "com.microsoft") {
		return &unknownRule
	}
	if r, ok := rules()[n.Op]; ok {
		return &r
	}
	return &unknownRule
}

// rules is read-only.
var rules = sync.OnceValue(buildRules)

func buildRules() map[string]rule {
	m := computeRules()
	maps.Copy(m, shapeRules())
	addFamilies(m)
	return m
}

// computeRules returns the rules of operators that compute.
func computeRules() map[string]rule {
	return map[string]rule{
		"Conv":          {class: ClassConv, infer: inferConv, saves: savesInput},
		"ConvInteger":   {class: ClassConv, infer: inferConv, saves: savesInput},
		"ConvTranspose": {class: ClassConv, infer: inferConvTranspose, saves: savesInput},
		"Gemm":          {class: ClassLinear, infer: inferGemm, saves: savesInputs},
		"FusedGemm":     {class: ClassLinear, infer: inferGemm, saves: savesInputs},
		"MatMul":        {class: ClassLinear, infer: inferMatMul, saves: savesInputs},
		"MatMulInteger": {class: ClassLinear, infer: inferMatMul, saves: savesInputs},
		"FusedMatMul":   {class: ClassLinear, infer: inferMatMul, saves: savesInputs},
		"Einsum":        {class: ClassLinear, infer: inferEinsum, saves: savesInputs},
		"LSTM":          {class: ClassLinear, infer: inferRNN(4), saves: savesInput, mask: maskRNN},
		"GRU":           {class: ClassLinear, infer: inferRNN(3), saves: savesInput, mask: maskRNN},
		"RNN":           {class: ClassLinear, infer: inferRNN(1), saves: savesInput, mask: maskRNN},

		"MaxPool":           {infer: inferPool, saves: savesInput, mask: maskIndices},
		"AveragePool":       {infer: inferPool, saves: savesInput},
		"LpPool":            {infer: inferPool, saves: savesInput},
		"GlobalAveragePool": {infer: inferGlobalPool},
		"GlobalMaxPool":     {infer: inferGlobalPool, saves: savesInput},

		"Softmax":    {infer: sameShape(5), saves: savesOutput},
		"LogSoftmax": {infer: sameShape(5), saves: savesOutput},
		"Hardmax":    {infer: sameShape(5)},
		"Dropout":    {infer: inferDropout, mask: maskBytes},
		"CumSum":     {infer: sameShape(1)},
		"Trilu":      {infer: sameShape(0)},

		"Where": {infer: inferWhere, mask: maskBytes},
		"Clip":  {class: ClassActivation, infer: sameShape(1), saves: savesInput},
		"Cast":  {infer: inferCast},
	}
}

// shapeRules returns the rules of operators that move, cut and describe tensors.
func shapeRules() map[string]rule {
	return map[string]rule{
		"Identity":  {infer: inferIdentity, view: true},
		"Reshape":   {infer: inferReshape, view: true},
		"Flatten":   {infer: inferFlatten, view: true},
		"Squeeze":   {infer: inferSqueeze, view: true},
		"Unsqueeze": {infer: inferUnsqueeze, view: true},
		"Transpose": {infer: inferTranspose, view: true},
		"Slice":     {infer: inferSlice, view: true},
		"Split":     {infer: inferSplit, view: true},
		"Expand":    {infer: inferExpand, view: true},
		"Concat":    {infer: inferConcat},
		"Pad":       {infer: inferPad},
		"Tile":      {infer: inferTile},
		"Resize":    {infer: inferResize},
		"Upsample":  {infer: inferResize},

		"DepthToSpace":    {infer: inferDepthToSpace},
		"SpaceToDepth":    {infer: inferSpaceToDepth},
		"Gather":          {infer: inferGather},
		"GatherElements":  {infer: inferGatherElements},
		"GatherND":        {infer: inferGatherND},
		"ScatterND":       {infer: sameShape(0)},
		"ScatterElements": {infer: sameShape(0)},
		"OneHot":          {infer: inferOneHot},
		"TopK":            {infer: inferTopK},
		"Shape":           {infer: inferShapeOf},
		"Size":            {infer: inferSizeOf},
		"Constant":        {infer: inferConstant},
		"ConstantOfShape": {infer: inferConstantOfShape},
		"Range":           {infer: inferRange},

		"QuantizeLinear":   {infer: inferQuantize},
		"DequantizeLinear": {infer: inferDequantize},
		"ArgMax":           {infer: inferArg},
		"ArgMin":           {infer: inferArg},
		"Attention":        {class: ClassLinear, infer: inferAttention, saves: savesInputs},
	}
}

// addFamilies adds operators that share a rule with others.
func addFamilies(m map[string]rule) {
	add := func(r rule, ops string) {
		for _, op := range strings.Fields(ops) {
			m[op] = r
		}
	}
	add(rule{class: ClassNorm, infer: sameShape(8), saves: savesInput, mask: maskStats},
		"BatchNormalization InstanceNormalization LayerNormalization GroupNormalization LpNormalization "+
			"MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization")
	add(rule{class: ClassNorm, infer: sameShape(8), saves: savesInputs, mask: maskStats},
		"LRN SkipLayerNormalization SkipSimplifiedLayerNormalization")
	add(rule{class: ClassActivation, infer: sameShape(1), saves: savesOutput}, "Relu Sigmoid Tanh Elu")
	add(rule{class: ClassActivation, infer: sameShape(4), saves: savesInput},
		"LeakyRelu PRelu Selu Celu Gelu FastGelu BiasGelu QuickGelu Silu Swish HardSwish HardSigmoid Mish Softplus Softsign ThresholdedRelu Erf Shrink")
	add(rule{infer: sameShape(1), saves: savesOutput}, "Exp Sqrt Reciprocal")
	add(rule{infer: sameShape(1), saves: savesInput}, "Log Sin Cos Tan Abs Sinh Cosh Asin Acos Atan")
	add(rule{infer: sameShape(1)}, "Neg Floor Ceil Round Sign Not IsNaN IsInf BitwiseNot")
	add(rule{infer: inferBinary}, "Add Sub")
	add(rule{infer: inferBinary, saves: savesFactors}, "Mul")
	add(rule{infer: inferBinary, saves: savesQuotient}, "Div Mod")
	add(rule{infer: inferBinary, saves: savesInputs}, "Pow")
	add(rule{infer: inferVariadic}, "Sum Mean")
	add(rule{infer: inferVariadic, saves: savesInputs}, "Max Min")
	add(rule{infer: inferCompare}, "Equal Greater Less GreaterOrEqual LessOrEqual And Or Xor")
	add(rule{infer: inferReduce}, "ReduceMean ReduceSum")
	add(rule{infer: inferReduce, saves: savesInput},
		"ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare")
}

// maskIndices: pooling keeps the position of each maximum, as int64.
func maskIndices(p *plan, s *step) int64 { return satMul(p.outElems(s), 8) }

// maskBytes: dropout and where keep a byte per element.
func maskBytes(p *plan, s *step) int64 { return p.outElems(s) }

// maskStats: norms keep mean and inverse deviation, two floats per row or channel.
func maskStats(p *plan, s *step) int64 {
	dims := p.tensors[s.out[0]].dims
	if len(dims) == 0 {
		return 0
	}
	if s.node.Op == "BatchNormalization" {
		if len(dims) > 1 {
			return satMul(dims[1], 8)
		}
		return 0
	}
	return satMul(product(dims[:len(dims)-1]), 8)
}

// maskRNN: cuDNN's reserve space keeps every gate of every step.
func maskRNN(p *plan, s *step) int64 {
	gates := map[string]int64{"LSTM": 6, "GRU": 5, "RNN": 2}[s.node.Op]
	elem := p.opt.Precision.ActivationBytes(4)
	return satMul(satMul(p.outElems(s), gates), elem)
}

func (p *plan) outElems(s *step) int64 {
	if len(s.out) == 0 {
		return 0
	}
	return p.tensors[s.out[0]].elems()
}
