package table

// Lanes is how many parts work is split into.
const Lanes = 2

// Together runs functions at once and returns once all have. What it is used for does
// not depend on their order: packages of the state machine start no goroutines by
// themselves. A nil one runs them one after another.
type Together func(...func())

// Run runs functions.
func (t Together) Run(fs ...func()) {
	if t != nil {
		t(fs...)
		return
	}
	for _, f := range fs {
		f()
	}
}

// Split calls work for the lanes of n items, each with the first and the one behind
// its last, and runs others beside.
func (t Together) Split(n int, work func(lane, from, to int), beside ...func()) {
	fs := make([]func(), 0, Lanes+len(beside))
	for lane := range Lanes {
		fs = append(fs, func() { work(lane, n*lane/Lanes, n*(lane+1)/Lanes) })
	}
	t.Run(append(fs, beside...)...)
}
