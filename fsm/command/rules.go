package command

// The entry versions at which the rules of Apply changed: an entry keeps the
// meaning it had when it was written. What entries of a version may hold is defined
// in the table of this package.
const (
	// A report's figures are checked, and more of them are kept in samples.
	CheckedVersion = 2
	// Samples record with whom an attempt shared its GPUs.
	CompanyVersion = 3
	// Running out of memory on a whole GPU is not final if a larger one could ever
	// run the job.
	LargerVersion = 6
	// GPUs have states and can be drained singly, and nodes have a history. In
	// earlier entries a GPU is either present or not.
	HealthVersion = 8
	// GPUs say whose jobs may share them: a job that took more GPU memory than it
	// declared is not rerun, and one that neighbours on its GPU ended is.
	SharingVersion = 8
	// A job is not blamed if its node could not run it.
	LifeVersion = 8
	// An attempt keeps the profile that its agent made.
	ProfileVersion = 8
	// Jobs belong to accounts, and the cost of attempts is charged.
	AccountVersion = 9
	// Notices are made of job events.
	TellVersion = 9
	// There are arrays: finished jobs are forgotten after a command, not within.
	ArrayVersion = 9
	// A changed job must fit the quotas of where it is then charged.
	ChargeVersion = 10
	// Notices say which array a job is a task of, or that they are about all of it.
	ArrayMailVersion = 10
	// A changed job drops its earlier dependencies, and a refused command drops
	// nothing.
	ChangeVersion = 11
	// Specs name large environments and scripts, which are sent separately; the
	// hash and snapshots hold the name.
	BulkVersion = 12
	// Running out of host memory is not final for a job that did not declare it,
	// and is learned from.
	HostVersion = 13
	// A job that outgrows what it was left with while idle is rerun with what it
	// had, and not cut for idleness again.
	OutgrewVersion = 13
	// A user of accounts always has a default one, and moving an account may not
	// put its descendants deeper than accounts may be.
	HomeVersion = 15
	// An attempt keeps what its agents did to the power and clock of its GPUs.
	PowerVersion = 15
	// A job says what its command has in common with others.
	ProgramVersion = 15
	// What waits for webhooks leaves room for mail, and what waits for one user's for
	// those of others.
	PostsVersion = 15
	// A job that is being started says why that is tried again.
	StartingVersion = 15
	// A changed job may not wait for itself.
	CircleVersion = 15
	// A job that failed early on several nodes may run on its fewest.
	ProbeVersion = 15
)
