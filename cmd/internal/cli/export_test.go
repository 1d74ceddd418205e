package cli

// What tests of the tree as a whole take from inside.
var (
	NewRoot   = newRoot
	WrapUsage = wrapUsage
)
