package control

import (
	"maps"
	"slices"
	"strings"

	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
)

// scontrolWays maps unsupported words of scontrol to what to do instead.
var scontrolWays = map[string]string{
	"suspend": "jobs cannot be suspended; berth requeue JOB ends one and runs it again, berth signal STOP JOB stops its processes",
	"resume":  "jobs cannot be suspended; berth signal CONT JOB continues stopped processes",
	"write":   "scripts cannot be retrieved; keep them with the job's output", "batch_script": "scripts cannot be retrieved; keep them with the job's output",
	"listpids": "processes of jobs are not listed; use berth exec JOB ps", "pidinfo": "jobs cannot be looked up by process; see BERTH_JOB_ID in the process's environment",
	"notify": "messages cannot be sent to jobs; berth exec JOB runs a command in one", "completing": "squeue -t CG lists jobs that are completing",
	"reconfigure": "daemons read their settings when they start, and some on SIGHUP; berth config print shows them", "shutdown": "stop the daemons with systemctl",
	"abort": "stop the daemons with systemctl", "takeover": "coordinators elect a leader by themselves; berth cluster status shows it",
	"reboot": "nodes are not rebooted; berth node drain empties one", "cancel_reboot": "nodes are not rebooted; berth node resume returns one to service",
	"setdebug": "logs are set in the daemons' configuration", "setdebugflags": "logs are set in the daemons' configuration", "schedloglevel": "logs are set in the daemons' configuration",
	"token": "users are identified by uid; there are no user tokens", "errnumstr": "errors have no numbers", "getaddrs": "berth node show NODE shows its address", "fsdampeningfactor": "shares are set by berth account set",
}

// verbs are the supported words of scontrol.
var verbs = []string{"show", "hold", "uhold", "holdu", "release", "requeue", "requeuehold", "update", "create", "delete", "ping", "top", "wait_job", "version"}

// verbOf completes a word of scontrol: to the only one with that prefix, or
// to the one that all others with it extend, as requeuehold extends requeue;
// otherwise it returns the word. Slurm's manual allows any word to be
// abbreviated while unique.
func verbOf(word string) string {
	word = strings.ToLower(word)
	all := slices.Sorted(maps.Keys(scontrolWays))
	var found []string
	for _, v := range append(all, verbs...) {
		switch {
		case v == word:
			return word
		case word != "" && strings.HasPrefix(v, word):
			found = append(found, v)
		}
	}
	slices.Sort(found)
	if len(found) == 0 || slices.ContainsFunc(found, func(v string) bool { return !strings.HasPrefix(v, found[0]) }) {
		return word
	}
	return found[0]
}

// showWays are what scontrol show shows in Slurm but not here.
var showWays = map[string]string{
	"steps": "steps are not listed: they belong to the srun that runs them", "assoc_mgr": "accounts are shown by berth account list, limits by berth quota list",
	"licenses": "licenses are not managed", "federation": option.OneCluster, "daemons": "berth cluster status shows the daemons",
	"slurmd": "berth node show NODE shows its agent", "aliases": "nodes have only one name", "frontend": "there are no front ends",
	"bbstat": "burst buffers are not managed", "dwstat": "burst buffers are not managed", "burstbuffer": "burst buffers are not managed",
}

// entities are what scontrol show shows.
var entities = []string{"jobs", "jobid", "nodes", "nodename", "partitions", "partitionname", "reservations", "reservationname", "config", "hostnames", "hostlist", "hostlistsorted", "topology"}

// entityOf resolves a word, or a prefix of one, after show; "" if it means nothing.
func entityOf(word string) string {
	if word == "" || slices.Contains(entities, word) {
		return word
	}
	if i := slices.IndexFunc(entities, func(e string) bool { return strings.HasPrefix(e, word) }); i >= 0 {
		return entities[i]
	}
	return ""
}
