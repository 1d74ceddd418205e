package table

// Kind is the class of an entity, part of what is hashed: numbers are never reused.
type Kind byte

// The kinds of entities.
const (
	Meta Kind = iota + 1
	Config
	Node
	Job
	Queue
	Request
	Token
	Denied
	Weights
	Sample
	Kept
	Pin
	Interference
	Partition
	Standing
	Spent
	Notice
	Hook
	Dead
	Telling
	Reservation
	Unshared
	Upload
)

// Array is far from those above, which continue.
const Array Kind = 64
