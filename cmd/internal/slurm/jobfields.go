package slurm

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"github.com/berth-scheduler/berth/cmd/internal/slurm/text"
)

func fixed(s string) func(*Job) string { return func(*Job) string { return s } }

// jobFields are the columns of squeue by the names of -O, without - and _.
var jobFields = sync.OnceValue(func() map[string]text.Column[Job] {
	return map[string]text.Column[Job]{
		"account":           {Head: "ACCOUNT", Value: func(j *Job) string { return orNull(j.Account) }},
		"arrayjobid":        {Head: "ARRAY_JOB_ID", Value: (*Job).arrayID},
		"arraytaskid":       {Head: "ARRAY_TASK_ID", Value: func(j *Job) string { return orNA(j.Listed()) }},
		"batchflag":         {Head: "BATCH_FLAG", Value: fixed("1")},
		"batchhost":         {Head: "EXEC_HOST", Value: func(j *Job) string { return cmp.Or(j.FirstNode(), "n/a") }},
		"command":           {Head: "COMMAND", Value: func(j *Job) string { return orNull(j.Command) }},
		"comment":           {Head: "COMMENT", Value: func(j *Job) string { return orNull(j.Comment) }},
		"contiguous":        {Head: "CONTIGUOUS", Value: fixed("0")},
		"cores":             {Head: "CORES_PER_SOCKET", Value: fixed("*")},
		"corespec":          {Head: "CORE_SPEC", Value: fixed("N/A")},
		"deadline":          {Head: "DEADLINE", Value: func(j *Job) string { return j.Times.Stamp(j.Deadline, "N/A") }},
		"dependency":        {Head: "DEPENDENCY", Value: func(j *Job) string { return orNull(j.Dependency) }},
		"eligibletime":      {Head: "ELIGIBLE_TIME", Value: func(j *Job) string { return j.Times.Stamp(j.Eligible, "N/A") }},
		"endtime":           {Head: "END_TIME", Value: (*Job).end},
		"excnodes":          {Head: "EXC_NODES", Value: func(j *Job) string { return j.Exclude }},
		"exitcode":          {Head: "EXIT_CODE", Whole: true, Value: func(j *Job) string { return number(j.ExitCode) }},
		"feature":           {Head: "FEATURES", Value: func(j *Job) string { return orNull(j.Features) }},
		"gres":              {Head: "TRES_PER_NODE", Value: func(j *Job) string { return orNA(j.Gres) }},
		"groupid":           {Head: "GROUP", Whole: true, Value: func(j *Job) string { return number(j.GID) }},
		"groupname":         {Head: "GROUP", Value: func(j *Job) string { return j.Group }},
		"jobarrayid":        {Head: "JOBID", Value: (*Job).shown},
		"jobid":             {Head: "JOBID", Value: (*Job).id},
		"licenses":          {Head: "LICENSES", Value: fixed(null)},
		"mincpus":           {Head: "MIN_CPUS", Whole: true, Value: func(j *Job) string { return number(cmp.Or(j.MinCPUs, j.CPUs)) }},
		"minmemory":         {Head: "MIN_MEMORY", Value: func(j *Job) string { return text.Memory(j.MinMemMiB) }},
		"mintmpdisk":        {Head: "MIN_TMP_DISK", Value: fixed("0")},
		"name":              {Head: "NAME", Value: func(j *Job) string { return j.Name }},
		"nice":              {Head: "NICE", Value: func(j *Job) string { return number(j.Nice) }},
		"nodelist":          {Head: "NODELIST", Value: func(j *Job) string { return j.NodeList }},
		"nodes":             {Head: "NODELIST", Value: func(j *Job) string { return j.NodeList }},
		"numcpus":           {Head: "CPUS", Whole: true, Value: func(j *Job) string { return number(j.CPUs) }},
		"numnodes":          {Head: "NODES", Whole: true, Value: func(j *Job) string { return number(j.Nodes) }},
		"numtasks":          {Head: "TASKS", Value: func(j *Job) string { return number(max(1, j.Tasked)) }},
		"oversubscribe":     {Head: "OVER_SUBSCRIBE", Value: (*Job).shares},
		"partition":         {Head: "PARTITION", Value: func(j *Job) string { return j.Partition }},
		"priority":          {Head: "PRIORITY", Value: (*Job).fraction},
		"prioritylong":      {Head: "PRIORITY", Whole: true, Value: func(j *Job) string { return number(j.Priority) }},
		"qos":               {Head: "QOS", Value: func(j *Job) string { return orNull(j.QOS) }},
		"reason":            {Head: "REASON", Value: func(j *Job) string { return j.Reason }},
		"reasonlist":        {Head: "NODELIST(REASON)", Value: (*Job).where},
		"reqnodes":          {Head: "REQ_NODES", Value: func(j *Job) string { return j.ReqNodes }},
		"requeue":           {Head: "REQUEUE", Whole: true, Value: func(j *Job) string { return number(flag(j.Requeue)) }},
		"reservation":       {Head: "RESERVATION", Value: func(j *Job) string { return orNull(j.Reservation) }},
		"restartcnt":        {Head: "RESTART_COUNT", Whole: true, Value: func(j *Job) string { return number(j.Restarts) }},
		"sct":               {Head: "S:C:T", Value: fixed("*:*:*")},
		"schednodes":        {Head: "SCHEDNODES", Value: fixed(null)},
		"sockets":           {Head: "SOCKETS_PER_NODE", Value: fixed("*")},
		"starttime":         {Head: "START_TIME", Value: (*Job).start},
		"state":             {Head: "STATE", Value: func(j *Job) string { return j.State }},
		"statecompact":      {Head: "ST", Value: func(j *Job) string { return j.Code }},
		"stderr":            {Head: "STDERR", Value: func(j *Job) string { return j.Stderr }},
		"stdin":             {Head: "STDIN", Value: func(j *Job) string { return j.Stdin }},
		"stdout":            {Head: "STDOUT", Value: func(j *Job) string { return j.Stdout }},
		"submittime":        {Head: "SUBMIT_TIME", Value: func(j *Job) string { return j.Times.Stamp(j.Submitted, "N/A") }},
		"switches":          {Head: "", Value: fixed("")},
		"threads":           {Head: "THREADS_PER_CORE", Value: fixed("*")},
		"timeleft":          {Head: "TIME_LEFT", Whole: true, Value: (*Job).left},
		"timelimit":         {Head: "TIME_LIMIT", Whole: true, Value: (*Job).limit},
		"timeused":          {Head: "TIME", Whole: true, Value: func(j *Job) string { return text.Span(j.Ran) }},
		"trespernode":       {Head: "TRES_PER_NODE", Value: func(j *Job) string { return orNA(j.Gres) }},
		"userid":            {Head: "UID", Whole: true, Value: func(j *Job) string { return number(j.UID) }},
		"username":          {Head: "USER", Value: func(j *Job) string { return j.User }},
		"wckey":             {Head: "WCKEY", Value: fixed(null)},
		"accruetime":        {Head: "ACCRUE_TIME", Value: func(j *Job) string { return j.Times.Stamp(j.Eligible, "N/A") }},
		"admincomment":      {Head: "ADMIN_COMMENT", Value: fixed(null)},
		"allocnodes":        {Head: "ALLOC_NODES", Value: (*Job).submitHost},
		"allocsid":          {Head: "ALLOC_SID", Value: fixed("0")},
		"associd":           {Head: "ASSOC_ID", Value: fixed("0")},
		"boardspernode":     {Head: "BOARDS_PER_NODE", Value: fixed("0")},
		"burstbuffer":       {Head: "BURST_BUFFER", Value: fixed(null)},
		"burstbufferstate":  {Head: "BURST_BUFFER_STATE", Value: fixed(null)},
		"cluster":           {Head: "CLUSTER", Value: func(j *Job) string { return orNA(j.Cluster) }},
		"clusterfeature":    {Head: "CLUSTER_FEATURES", Value: fixed(null)},
		"container":         {Head: "CONTAINER", Value: fixed(null)},
		"cpuspertask":       {Head: "CPUS_PER_TASK", Value: func(j *Job) string { return number(j.PerTask()) }},
		"cpuspertres":       {Head: "CPUS_PER_TRES", Value: fixed("N/A")},
		"delayboot":         {Head: "DELAY_BOOT", Value: fixed("0:00")},
		"derivedec":         {Head: "DERIVED_EC", Value: func(j *Job) string { return number(j.ExitCode) }},
		"hetjobid":          {Head: "HET_JOB_ID", Value: fixed("N/A")},
		"hetjobidset":       {Head: "HET_JOB_ID_SET", Value: fixed("N/A")},
		"hetjoboffset":      {Head: "HET_JOB_OFFSET", Value: fixed("N/A")},
		"lastschedeval":     {Head: "LAST_SCHED_EVAL", Value: func(j *Job) string { return j.Times.Stamp(j.LastEval, "N/A") }},
		"maxcpus":           {Head: "MAX_CPUS", Value: func(j *Job) string { return number(j.CPUs) }},
		"maxnodes":          {Head: "MAX_NODES", Value: func(j *Job) string { return number(j.Nodes) }},
		"mcslabel":          {Head: "MCSLABEL", Value: fixed(null)},
		"mempertres":        {Head: "MEM_PER_TRES", Value: fixed("N/A")},
		"mintime":           {Head: "TIME_MIN", Value: fixed("0:00")},
		"network":           {Head: "NETWORK", Value: fixed(null)},
		"ntperboard":        {Head: "NTASKS_PER_BOARD", Value: fixed("0")},
		"ntpercore":         {Head: "NTASKS_PER_CORE", Value: fixed("N/A")},
		"ntpernode":         {Head: "NTASKS_PER_NODE", Value: (*Job).perNode},
		"ntpersocket":       {Head: "NTASKS_PER_SOCKET", Value: fixed("N/A")},
		"origin":            {Head: "ORIGIN", Value: fixed("NA")},
		"originraw":         {Head: "ORIGIN_RAW", Value: fixed("NA")},
		"pendingtime":       {Head: "PENDING_TIME", Value: func(j *Job) string { return number(int64(max(0, j.Pending) / time.Second)) }},
		"preempttime":       {Head: "PREEMPT_TIME", Value: fixed("N/A")},
		"prefer":            {Head: "PREFER", Value: fixed(null)},
		"profile":           {Head: "PROFILE", Value: fixed("NotSet")},
		"reboot":            {Head: "REBOOT", Value: fixed("0")},
		"reqswitch":         {Head: "REQ_SWITCH", Value: fixed("0")},
		"resizetime":        {Head: "RESIZE_TIME", Value: fixed("N/A")},
		"selectjobinfo":     {Head: "", Value: fixed("")},
		"siblingsactive":    {Head: "ACTIVE_SIBLINGS", Value: fixed("NA")},
		"siblingsactiveraw": {Head: "ACTIVE_SIBLINGS_RAW", Value: fixed("NA")},
		"siblingsviable":    {Head: "VIABLE_SIBLINGS", Value: fixed("NA")},
		"siblingsviableraw": {Head: "VIALBLE_SIBLINGS_RAW", Value: fixed("NA")},
		"sperboard":         {Head: "SOCKETS_PER_BOARD", Value: fixed("0")},
		"systemcomment":     {Head: "SYSTEM_COMMENT", Value: fixed(null)},
		"tresalloc":         {Head: "TRES_ALLOC", Value: (*Job).TRES},
		"tresbind":          {Head: "TRES_BIND", Value: fixed("N/A")},
		"tresfreq":          {Head: "TRES_FREQ", Value: fixed("N/A")},
		"tresperjob":        {Head: "TRES_PER_JOB", Value: fixed("N/A")},
		"trespersocket":     {Head: "TRES_PER_SOCKET", Value: fixed("N/A")},
		"trespertask":       {Head: "TRES_PER_TASK", Value: fixed("N/A")},
		"wait4switch":       {Head: "WAIT4SWITCH", Value: fixed("0:00")},
		"workdir":           {Head: "WORK_DIR", Value: func(j *Job) string { return j.Dir }},
	}
})

// shares says whether other jobs may run on its nodes.
func (j *Job) shares() string {
	if j.Whole {
		return "NO"
	}
	return "OK"
}

// perNode returns how many tasks it requested per node, 0 for at most one.
func (j *Job) perNode() string {
	if j.Tasked > int64(j.Nodes) {
		return number(j.Tasked / int64(max(1, j.Nodes)))
	}
	return "0"
}

// submitHost returns where it was submitted.
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
var jobLetters = sync.OnceValue(func() map[byte]text.Column[Job] {
	return text.Letters(map[byte]string{
		'i': "jobarrayid", 'A': "jobid", 'a': "account", 'b': "trespernode", 'c': "mincpus", 'C': "numcpus", 'd': "mintmpdisk", 'D': "numnodes",
		'e': "endtime", 'E': "dependency", 'f': "feature", 'F': "arrayjobid", 'g': "groupname", 'G': "groupid", 'h': "oversubscribe", 'H': "sockets",
		'I': "cores", 'j': "name", 'J': "threads", 'k': "comment", 'K': "arraytaskid", 'l': "timelimit", 'L': "timeleft", 'm': "minmemory", 'M': "timeused",
		'n': "reqnodes", 'N': "nodelist", 'o': "command", 'O': "contiguous", 'p': "priority", 'P': "partition", 'q': "qos", 'Q': "prioritylong",
		'r': "reason", 'R': "reasonlist", 's': "switches", 'S': "starttime", 't': "statecompact", 'T': "state", 'u': "username", 'U': "userid",
		'v': "reservation", 'V': "submittime", 'w': "wckey", 'W': "licenses", 'x': "excnodes", 'X': "corespec", 'y': "nice", 'Y': "schednodes",
		'z': "sct", 'Z': "workdir", 'B': "batchhost",
	}, jobFields())
})
