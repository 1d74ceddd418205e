package slurm

import (
	"cmp"
	"strings"
	"sync"
	"time"
)

func fixed(s string) func(*Job) string { return func(*Job) string { return s } }

// jobFields are the columns of squeue by the names of -O, without - and _.
var jobFields = sync.OnceValue(func() map[string]column[Job] {
	return map[string]column[Job]{
		"account":           {head: "ACCOUNT", value: func(j *Job) string { return orNull(j.Account) }},
		"arrayjobid":        {head: "ARRAY_JOB_ID", value: (*Job).arrayID},
		"arraytaskid":       {head: "ARRAY_TASK_ID", value: func(j *Job) string { return orNA(j.listed()) }},
		"batchflag":         {head: "BATCH_FLAG", value: fixed("1")},
		"batchhost":         {head: "EXEC_HOST", value: func(j *Job) string { return cmp.Or(j.firstNode(), "n/a") }},
		"command":           {head: "COMMAND", value: func(j *Job) string { return orNull(j.Command) }},
		"comment":           {head: "COMMENT", value: func(j *Job) string { return orNull(j.Comment) }},
		"contiguous":        {head: "CONTIGUOUS", value: fixed("0")},
		"cores":             {head: "CORES_PER_SOCKET", value: fixed("*")},
		"corespec":          {head: "CORE_SPEC", value: fixed("N/A")},
		"deadline":          {head: "DEADLINE", value: func(j *Job) string { return j.Times.stamp(j.Deadline, "N/A") }},
		"dependency":        {head: "DEPENDENCY", value: func(j *Job) string { return orNull(j.Dependency) }},
		"eligibletime":      {head: "ELIGIBLE_TIME", value: func(j *Job) string { return j.Times.stamp(j.Eligible, "N/A") }},
		"endtime":           {head: "END_TIME", value: (*Job).end},
		"excnodes":          {head: "EXC_NODES", value: func(j *Job) string { return j.Exclude }},
		"exitcode":          {head: "EXIT_CODE", whole: true, value: func(j *Job) string { return number(j.ExitCode) }},
		"feature":           {head: "FEATURES", value: func(j *Job) string { return orNull(j.Features) }},
		"gres":              {head: "TRES_PER_NODE", value: func(j *Job) string { return orNA(j.Gres) }},
		"groupid":           {head: "GROUP", whole: true, value: func(j *Job) string { return number(j.GID) }},
		"groupname":         {head: "GROUP", value: func(j *Job) string { return j.Group }},
		"jobarrayid":        {head: "JOBID", value: (*Job).shown},
		"jobid":             {head: "JOBID", value: (*Job).id},
		"licenses":          {head: "LICENSES", value: fixed(null)},
		"mincpus":           {head: "MIN_CPUS", whole: true, value: func(j *Job) string { return number(cmp.Or(j.MinCPUs, j.CPUs)) }},
		"minmemory":         {head: "MIN_MEMORY", value: func(j *Job) string { return memory(j.MinMemMiB) }},
		"mintmpdisk":        {head: "MIN_TMP_DISK", value: fixed("0")},
		"name":              {head: "NAME", value: func(j *Job) string { return j.Name }},
		"nice":              {head: "NICE", value: func(j *Job) string { return number(j.Nice) }},
		"nodelist":          {head: "NODELIST", value: func(j *Job) string { return j.NodeList }},
		"nodes":             {head: "NODELIST", value: func(j *Job) string { return j.NodeList }},
		"numcpus":           {head: "CPUS", whole: true, value: func(j *Job) string { return number(j.CPUs) }},
		"numnodes":          {head: "NODES", whole: true, value: func(j *Job) string { return number(j.Nodes) }},
		"numtasks":          {head: "TASKS", value: func(j *Job) string { return number(max(1, j.Tasked)) }},
		"oversubscribe":     {head: "OVER_SUBSCRIBE", value: (*Job).shares},
		"partition":         {head: "PARTITION", value: func(j *Job) string { return j.Partition }},
		"priority":          {head: "PRIORITY", value: (*Job).fraction},
		"prioritylong":      {head: "PRIORITY", whole: true, value: func(j *Job) string { return number(j.Priority) }},
		"qos":               {head: "QOS", value: func(j *Job) string { return orNull(j.QOS) }},
		"reason":            {head: "REASON", value: func(j *Job) string { return j.Reason }},
		"reasonlist":        {head: "NODELIST(REASON)", value: (*Job).where},
		"reqnodes":          {head: "REQ_NODES", value: func(j *Job) string { return j.ReqNodes }},
		"requeue":           {head: "REQUEUE", whole: true, value: func(j *Job) string { return number(flag(j.Requeue)) }},
		"reservation":       {head: "RESERVATION", value: func(j *Job) string { return orNull(j.Reservation) }},
		"restartcnt":        {head: "RESTART_COUNT", whole: true, value: func(j *Job) string { return number(j.Restarts) }},
		"sct":               {head: "S:C:T", value: fixed("*:*:*")},
		"schednodes":        {head: "SCHEDNODES", value: fixed(null)},
		"sockets":           {head: "SOCKETS_PER_NODE", value: fixed("*")},
		"starttime":         {head: "START_TIME", value: (*Job).start},
		"state":             {head: "STATE", value: func(j *Job) string { return j.State }},
		"statecompact":      {head: "ST", value: func(j *Job) string { return j.Code }},
		"stderr":            {head: "STDERR", value: func(j *Job) string { return j.Stderr }},
		"stdin":             {head: "STDIN", value: func(j *Job) string { return j.Stdin }},
		"stdout":            {head: "STDOUT", value: func(j *Job) string { return j.Stdout }},
		"submittime":        {head: "SUBMIT_TIME", value: func(j *Job) string { return j.Times.stamp(j.Submitted, "N/A") }},
		"switches":          {head: "", value: fixed("")},
		"threads":           {head: "THREADS_PER_CORE", value: fixed("*")},
		"timeleft":          {head: "TIME_LEFT", whole: true, value: (*Job).left},
		"timelimit":         {head: "TIME_LIMIT", whole: true, value: (*Job).limit},
		"timeused":          {head: "TIME", whole: true, value: func(j *Job) string { return span(j.Ran) }},
		"trespernode":       {head: "TRES_PER_NODE", value: func(j *Job) string { return orNA(j.Gres) }},
		"userid":            {head: "UID", whole: true, value: func(j *Job) string { return number(j.UID) }},
		"username":          {head: "USER", value: func(j *Job) string { return j.User }},
		"wckey":             {head: "WCKEY", value: fixed(null)},
		"accruetime":        {head: "ACCRUE_TIME", value: func(j *Job) string { return j.Times.stamp(j.Eligible, "N/A") }},
		"admincomment":      {head: "ADMIN_COMMENT", value: fixed(null)},
		"allocnodes":        {head: "ALLOC_NODES", value: (*Job).submitHost},
		"allocsid":          {head: "ALLOC_SID", value: fixed("0")},
		"associd":           {head: "ASSOC_ID", value: fixed("0")},
		"boardspernode":     {head: "BOARDS_PER_NODE", value: fixed("0")},
		"burstbuffer":       {head: "BURST_BUFFER", value: fixed(null)},
		"burstbufferstate":  {head: "BURST_BUFFER_STATE", value: fixed(null)},
		"cluster":           {head: "CLUSTER", value: func(j *Job) string { return orNA(j.Cluster) }},
		"clusterfeature":    {head: "CLUSTER_FEATURES", value: fixed(null)},
		"container":         {head: "CONTAINER", value: fixed(null)},
		"cpuspertask":       {head: "CPUS_PER_TASK", value: func(j *Job) string { return number(j.perTask()) }},
		"cpuspertres":       {head: "CPUS_PER_TRES", value: fixed("N/A")},
		"delayboot":         {head: "DELAY_BOOT", value: fixed("0:00")},
		"derivedec":         {head: "DERIVED_EC", value: func(j *Job) string { return number(j.ExitCode) }},
		"hetjobid":          {head: "HET_JOB_ID", value: fixed("N/A")},
		"hetjobidset":       {head: "HET_JOB_ID_SET", value: fixed("N/A")},
		"hetjoboffset":      {head: "HET_JOB_OFFSET", value: fixed("N/A")},
		"lastschedeval":     {head: "LAST_SCHED_EVAL", value: func(j *Job) string { return j.Times.stamp(j.LastEval, "N/A") }},
		"maxcpus":           {head: "MAX_CPUS", value: func(j *Job) string { return number(j.CPUs) }},
		"maxnodes":          {head: "MAX_NODES", value: func(j *Job) string { return number(j.Nodes) }},
		"mcslabel":          {head: "MCSLABEL", value: fixed(null)},
		"mempertres":        {head: "MEM_PER_TRES", value: fixed("N/A")},
		"mintime":           {head: "TIME_MIN", value: fixed("0:00")},
		"network":           {head: "NETWORK", value: fixed(null)},
		"ntperboard":        {head: "NTASKS_PER_BOARD", value: fixed("0")},
		"ntpercore":         {head: "NTASKS_PER_CORE", value: fixed("N/A")},
		"ntpernode":         {head: "NTASKS_PER_NODE", value: (*Job).perNode},
		"ntpersocket":       {head: "NTASKS_PER_SOCKET", value: fixed("N/A")},
		"origin":            {head: "ORIGIN", value: fixed("NA")},
		"originraw":         {head: "ORIGIN_RAW", value: fixed("NA")},
		"pendingtime":       {head: "PENDING_TIME", value: func(j *Job) string { return number(int64(max(0, j.Pending) / time.Second)) }},
		"preempttime":       {head: "PREEMPT_TIME", value: fixed("N/A")},
		"prefer":            {head: "PREFER", value: fixed(null)},
		"profile":           {head: "PROFILE", value: fixed("NotSet")},
		"reboot":            {head: "REBOOT", value: fixed("0")},
		"reqswitch":         {head: "REQ_SWITCH", value: fixed("0")},
		"resizetime":        {head: "RESIZE_TIME", value: fixed("N/A")},
		"selectjobinfo":     {head: "", value: fixed("")},
		"siblingsactive":    {head: "ACTIVE_SIBLINGS", value: fixed("NA")},
		"siblingsactiveraw": {head: "ACTIVE_SIBLINGS_RAW", value: fixed("NA")},
		"siblingsviable":    {head: "VIABLE_SIBLINGS", value: fixed("NA")},
		"siblingsviableraw": {head: "VIALBLE_SIBLINGS_RAW", value: fixed("NA")},
		"sperboard":         {head: "SOCKETS_PER_BOARD", value: fixed("0")},
		"systemcomment":     {head: "SYSTEM_COMMENT", value: fixed(null)},
		"tresalloc":         {head: "TRES_ALLOC", value: (*Job).tres},
		"tresbind":          {head: "TRES_BIND", value: fixed("N/A")},
		"tresfreq":          {head: "TRES_FREQ", value: fixed("N/A")},
		"tresperjob":        {head: "TRES_PER_JOB", value: fixed("N/A")},
		"trespersocket":     {head: "TRES_PER_SOCKET", value: fixed("N/A")},
		"trespertask":       {head: "TRES_PER_TASK", value: fixed("N/A")},
		"wait4switch":       {head: "WAIT4SWITCH", value: fixed("0:00")},
		"workdir":           {head: "WORK_DIR", value: func(j *Job) string { return j.Dir }},
	}
})

// shares is whether others may run on its nodes.
func (j *Job) shares() string {
	if j.Whole {
		return "NO"
	}
	return "OK"
}

// perNode is how many tasks it asked for on each node, 0 for no more than one.
func (j *Job) perNode() string {
	if j.Tasked > int64(j.Nodes) {
		return number(j.Tasked / int64(max(1, j.Nodes)))
	}
	return "0"
}

// submitHost is where it was submitted.
func (j *Job) submitHost() string {
	host, _, _ := strings.Cut(j.SubmitHost, ":")
	return cmp.Or(host, "localhost")
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// jobLetters are the letters of squeue -o.
var jobLetters = sync.OnceValue(func() map[byte]column[Job] {
	return letters(map[byte]string{
		'i': "jobarrayid", 'A': "jobid", 'a': "account", 'b': "trespernode", 'c': "mincpus", 'C': "numcpus", 'd': "mintmpdisk", 'D': "numnodes",
		'e': "endtime", 'E': "dependency", 'f': "feature", 'F': "arrayjobid", 'g': "groupname", 'G': "groupid", 'h': "oversubscribe", 'H': "sockets",
		'I': "cores", 'j': "name", 'J': "threads", 'k': "comment", 'K': "arraytaskid", 'l': "timelimit", 'L': "timeleft", 'm': "minmemory", 'M': "timeused",
		'n': "reqnodes", 'N': "nodelist", 'o': "command", 'O': "contiguous", 'p': "priority", 'P': "partition", 'q': "qos", 'Q': "prioritylong",
		'r': "reason", 'R': "reasonlist", 's': "switches", 'S': "starttime", 't': "statecompact", 'T': "state", 'u': "username", 'U': "userid",
		'v': "reservation", 'V': "submittime", 'w': "wckey", 'W': "licenses", 'x': "excnodes", 'X': "corespec", 'y': "nice", 'Y': "schednodes",
		'z': "sct", 'Z': "workdir", 'B': "batchhost",
	}, jobFields())
})

func letters[T any](names map[byte]string, fields map[string]column[T]) map[byte]column[T] {
	out := make(map[byte]column[T], len(names))
	for c, name := range names {
		out[c] = fields[name]
	}
	return out
}
