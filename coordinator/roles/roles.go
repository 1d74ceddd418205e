// Package roles names the roles of daemons in certificates.
package roles

// The roles of a certificate's holder.
const (
	Coordinator = "coordinator"
	Agent       = "agent"
	Gate        = "gate"
	// Serial is the denied role for single certificates.
	Serial = "serial"
)
