// Package roles names the roles that certificates give to daemons.
package roles

// What a certificate's holder is.
const (
	Coordinator = "coordinator"
	Agent       = "agent"
	Gate        = "gate"
	// Serial stands among the denied roles for single certificates.
	Serial = "serial"
)
