package command

// The versions of entries from which on Apply goes by other rules than before:
// what an entry once meant it means for ever. What entries of a version may hold
// is package command's to say.
const (
	// A report's figures are checked, and more of them is kept in samples.
	CheckedVersion = 2
	// Samples say with whom an attempt shared its GPUs.
	CompanyVersion = 3
	// An out-of-memory on a whole GPU is not final where a larger one could ever
	// run the job.
	LargerVersion = 6
	// Cards have states, single ones can be drained, and nodes have a history. To
	// entries of before a card is there or it is not.
	HealthVersion = 8
	// Cards say whose jobs may share them: a job that took more GPU memory than it
	// declared is not tried again, and one that others on its GPU ended is.
	SharingVersion = 8
	// A job that its node could not run is not to blame for it.
	LifeVersion = 8
	// An attempt keeps the profile that its agent made.
	ProfileVersion = 8
	// Jobs are of accounts, and what attempts cost is charged.
	AccountVersion = 9
	// Notices are made of what befalls jobs.
	TellVersion = 9
	// There are arrays: the finished are forgotten after a command, not within.
	ArrayVersion = 9
	// A job that is changed needs room in the quotas of where it is charged then.
	ChargeVersion = 10
	// Notices say of which array a job is a task, or that they are of all of it.
	ArrayMailVersion = 10
	// A job that is changed forgets what it waited for before, and what is refused
	// forgets nothing.
	ChangeVersion = 11
	// Specs name large environments and scripts, which come by themselves; the hash
	// and snapshots hold the name.
	BulkVersion = 12
	// Out of host memory is not final for a job that did not declare it, and is learnt.
	HostVersion = 13
	// A job that outgrows what was left to it as it stood idle runs again with what it
	// had, and is not cut for that again.
	OutgrewVersion = 13
	// A user of accounts always has a default one, and an account is moved with what is
	// below it no deeper than accounts may be.
	HomeVersion = 15
	// An attempt keeps what its agents did to the power and clock of its cards.
	PowerVersion = 15
	// A job says what its command has in common with others.
	ProgramVersion = 15
)
