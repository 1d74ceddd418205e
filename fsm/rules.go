package fsm

// ClearsDepends is the version of entries from which on a job can be told to wait
// for nobody: before, it kept what it had waited for.
const ClearsDepends = changeVersion

// The versions of entries from which on Apply goes by other rules than before:
// what an entry once meant it means for ever. What entries of a version may hold
// is package command's to say.
const (
	// A report's figures are checked, and more of them is kept in samples.
	checkedVersion = 2
	// Samples say with whom an attempt shared its GPUs.
	companyVersion = 3
	// An out-of-memory on a whole GPU is not final where a larger one could ever
	// run the job.
	largerVersion = 6
	// Cards have states, single ones can be drained, and nodes have a history. To
	// entries of before a card is there or it is not.
	healthVersion = 8
	// Cards say whose jobs may share them: a job that took more GPU memory than it
	// declared is not tried again, and one that others on its GPU ended is.
	sharingVersion = 8
	// A job that its node could not run is not to blame for it.
	lifeVersion = 8
	// An attempt keeps the profile that its agent made.
	profileVersion = 8
	// Jobs are of accounts, and what attempts cost is charged.
	accountVersion = 9
	// Notices are made of what befalls jobs.
	tellVersion = 9
	// There are arrays: the finished are forgotten after a command, not within.
	arrayVersion = 9
	// A job that is changed needs room in the quotas of where it is charged then.
	chargeVersion = 10
	// Notices say of which array a job is a task, or that they are of all of it.
	arrayMailVersion = 10
	// A job that is changed forgets what it waited for before, and what is refused
	// forgets nothing.
	changeVersion = 11
)
