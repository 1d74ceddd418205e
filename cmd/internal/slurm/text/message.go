package text

// Message is an error in Slurm's own words, capitals included: scripts search for them.
type Message string

// Error implements error.
func (m Message) Error() string { return string(m) }
