package limit

// smallBytes is what requests of one user may take however much the others hold,
// up to the total: ordinary submits.
const smallBytes = 64 << 10

// fair reports whether a user may hold mine of something of which all would hold
// sum then, and at most total. Alone, a user may hold per; beside others the same
// fraction of what is left, so that any number of users who take all they may leave
// something for one more (Choudhury and Hahne, "Dynamic queue length thresholds",
// 1998). The last quarter is for users who hold no more than least.
func fair(mine, sum, per, total, least int64) bool {
	shared := total - total/4
	if mine <= least || per >= shared {
		return mine <= max(per, least) && sum <= total
	}
	return float64(mine)*float64(shared-per) <= float64(per)*float64(shared-sum)
}
