package text

// Message is an error in Slurm's own words, capitals included: scripts look for
// them.
type Message string

// Error implements error.
func (m Message) Error() string { return string(m) }
