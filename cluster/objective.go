package cluster

// Objective is what a job's GPU type is chosen for, as users say it (DOPE-ML).
type Objective string

// The objectives. The empty one leaves the choice to the cluster's policy.
const (
	// ObjectiveLatency takes the type on which the job ends first.
	ObjectiveLatency Objective = "latency"
	// ObjectiveThroughput takes the least of the cluster: the type of which it
	// needs the smallest part of a card for the shortest time.
	ObjectiveThroughput Objective = "throughput"
	// ObjectiveEnergy takes the least predicted energy, ObjectiveCost the least
	// price.
	ObjectiveEnergy Objective = "energy"
	ObjectiveCost   Objective = "cost"
	// ObjectiveBalanced weighs time, energy and price alike.
	ObjectiveBalanced Objective = "balanced"
)

// Objectives lists them.
func Objectives() []Objective {
	return []Objective{ObjectiveLatency, ObjectiveThroughput, ObjectiveEnergy, ObjectiveCost, ObjectiveBalanced}
}
