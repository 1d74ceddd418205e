package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Why cluster-wide settings are dropped, many for the same reason.
const (
	whyDaemons  = "Berth's daemons have their own files, coordinator.yaml and agent.yaml"
	whyAuth     = "daemons authenticate by certificates, users by what the kernel reports"
	whyNoDB     = "there is no database: the coordinators keep the records of finished jobs"
	whyMeasured = "jobs are always measured"
	whyPlugins  = "there are no plugins of that kind"
	whyPower    = "idle nodes are powered down by power_saving in coordinator.yaml, see docs/power.md"
	whyLaunch   = "a job's processes are started by the node's agent, in the job's own control group"
	whyOrder    = "job order is set by the policies in coordinator.yaml"
	whyLimits   = "limits are fixed; see berth cluster status"
	whyPredict  = "what a job does not request is predicted; see berth predict"
	whyPreempt  = "the job and the policy decide what may be preempted; see docs/user-guide.md"
	whyOwnTime  = "Berth's daemons have their own timeouts"
	whyCores    = "no default clocks are set for jobs"
	whyBoth     = "Berth always accounts for cores, memory and shares of GPUs"
	whyNotOne   = "not supported here"
)

// reasons are the settings of slurm.conf 22.05, and some of other versions, by why
// they are dropped.
var reasons = []struct{ why, keys string }{
	{whyDaemons, `BackupAddr BackupController ControlAddr ControlMachine SlurmctldAddr SlurmctldHost SlurmctldDebug SlurmctldLogFile
		SlurmctldParameters SlurmctldPidFile SlurmctldPlugstack SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg
		SlurmctldSyslogDebug SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdSyslogDebug
		SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel SlurmUser StateSaveLocation DebugFlags LogTimeFormat PluginDir PlugStackConfig
		CommunicationParameters SrunPortRange TreeWidth RoutePlugin CheckpointType JobCheckpointDir FastSchedule ReconfigFlags`},
	{whyAuth, `AuthAltTypes AuthAltParameters AuthInfo AuthType CredType CryptoType JobCredentialPrivateKey JobCredentialPublicCertificate PrivateData`},
	{whyNoDB, `AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
		AccountingStorageLoc AccountingStorageParameters AccountingStoragePass AccountingStoragePort AccountingStorageTRES
		AccountingStorageType AccountingStorageUser AccountingStoreFlags AccountingStoreJobComment JobCompHost JobCompLoc JobCompParams JobCompPass
		JobCompPort JobCompType JobCompUser MaxDBDMsgs FederationParameters TrackWCKey MinJobAge`},
	{whyMeasured, `AcctGatherNodeFreq AcctGatherEnergyType AcctGatherInterconnectType AcctGatherInfinibandType AcctGatherFilesystemType
		AcctGatherProfileType JobAcctGatherType JobAcctGatherFrequency JobAcctGatherParams ExtSensorsFreq ExtSensorsType`},
	{whyPlugins, `BurstBufferType CliFilterPlugins CoreSpecPlugin JobContainerType JobSubmitPlugins MCSParameters MCSPlugin
		NodeFeaturesPlugins PrEpParameters PrEpPlugins PrioritySiteFactorParameters PrioritySiteFactorPlugin ScronParameters
		SwitchParameters SwitchType TopologyParam TopologyPlugin ProctrackType TaskPlugin TaskPluginParam LaunchType
		MpiDefault MpiParams PreemptParameters`},
	{whyPower, `PowerParameters PowerPlugin RebootProgram ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout SuspendExcNodes
		SuspendExcParts SuspendProgram SuspendRate SuspendTime SuspendTimeout`},
	{whyLaunch, `BatchStartTimeout BcastExclude BcastParameters EioTimeout GetEnvTimeout InteractiveStepOptions KillOnBadExit
		LaunchParameters PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept RequeueExit RequeueExitHold
		SrunEpilog SrunProlog TaskEpilog TaskProlog UnkillableStepProgram UnkillableStepTimeout WaitTime VSizeFactor
		EpilogMsgTime PrologFlags MaxTasksPerNode MaxStepCount AllowSpecResourcesUsage UsePAM TmpFS`},
	{whyOrder, `SchedulerParameters SchedulerTimeSlice SchedulerType SchedulerPort SchedulerRootFilter FairShareDampeningFactor PriorityCalcPeriod
		PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge PriorityParameters PriorityType
		PriorityUsageResetPeriod PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
		PriorityWeightQOS PriorityWeightTRES`},
	{whyLimits, `FirstJobId MaxArraySize MaxJobCount MaxJobId MaxNodeCount EnforcePartLimits`},
	{whyPredict, `DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode JobDefaults MaxMemPerCPU MaxMemPerNode`},
	{whyPreempt, `PreemptMode PreemptType PreemptExemptTime JobRequeue`},
	{whyOwnTime, `SlurmctldTimeout SlurmdTimeout MessageTimeout TCPTimeout KeepAliveTime InactiveLimit CompleteWait ReturnToService
		GroupUpdateForce GroupUpdateTime OverTimeLimit ResvOverRun`},
	{whyCores, `CpuFreqDef CpuFreqGovernors GpuFreqDef`},
	{whyBoth, `SelectType SelectTypeParameters GresTypes`},
	{whyNotOne, `Licenses DisableRootJobs JobFileAppend DependencyParameters ResvEpilog ResvProlog`},
}

// particular are settings with a reason of their own, in lower case.
var particular = map[string]string{
	"accountingstorageenforce": "limits are always enforced once set",
	"accountingstoragetres":    "GPU time is always accounted for, by the share that was used",
	"acctgatherenergytype":     "power is read from the GPUs",
	"acctgatherprofiletype":    "the GPU usage of every job is profiled",
	"burstbuffertype":          "burst buffers are not managed",
	"disablerootjobs":          "jobs of root are refused unless users.allow_root is set in agent.yaml",
	"enforcepartlimits":        "a job that can never run in its partition is refused at submission",
	"epilogslurmctld":          "nothing runs on the coordinators for a job",
	"federationparameters":     "there is only one cluster",
	"frontendaddr":             "there are no front-end nodes",
	"frontendname":             "there are no front-end nodes",
	"healthcheckprogram":       "GPUs are checked before and after each job; set a program of your own as gpus.health.check in agent.yaml",
	"healthcheckinterval":      "GPUs are checked before and after each job; see gpus.health in agent.yaml",
	"healthchecknodestate":     "GPUs are checked before and after each job; see gpus.health in agent.yaml",
	"interactivestepoptions":   "berth shell opens a shell in a job",
	"jobcontainertype":         "an image job has its own /tmp; see containers.tmp_mib in agent.yaml",
	"jobfileappend":            "output is appended to unless --open-mode=truncate",
	"jobrequeue":               "a job with --requeue runs again if its node is lost",
	"jobsubmitplugins":         "use partitions and limits to refuse jobs; no plugin runs at submission",
	"killonbadexit":            "when one rank of a job on several nodes fails, the job ends",
	"licenses":                 "licenses are not managed",
	"maildomain":               "the job names who gets mail",
	"mailprog":                 "mail is set in notify of coordinator.yaml",
	"minjobage":                "finished jobs are shown for as long as the coordinators keep them",
	"mpidefault":               "ranks find each other as described under Gangs in the user guide",
	"mpiparams":                "ranks find each other as described under Gangs in the user guide",
	"overtimelimit":            "a job ends at its limit",
	"priorityfavorsmall":       "large jobs go first among equals, so that small ones fit around them",
	"privatedata":              "everybody can see jobs, only their owners their output",
	"proctracktype":            "jobs always run in control groups",
	"prologflags":              "the prolog always runs before a job's first process, and the job always in a control group",
	"prologslurmctld":          "nothing runs on the coordinators for a job",
	"propagateresourcelimits":  "limits are the node's; see containers in agent.yaml",
	"requeueexit":              "jobs are not requeued because of their exit code",
	"requeueexithold":          "jobs are not requeued because of their exit code",
	"returntoservice":          "a node that returns is used again once its GPUs pass their checks",
	"schedulertype":            "jobs are backfilled by their predicted run time",
	"slurmctldhost":            "coordinators name each other in coordinator.yaml; three of them need no shared directory",
	"slurmctldtimeout":         "a new leader serves within seconds",
	"srunportrange":            "attached terminals are relayed by the coordinators",
	"statesavelocation":        "each coordinator keeps its state on its own disk, in data.dir",
	"taskepilog":               "jobs.epilog in agent.yaml runs after each attempt, as root",
	"taskplugin":               "jobs always run in control groups",
	"taskprolog":               "put the variables that it exports into jobs.env in agent.yaml",
	"tmpfs":                    "an image job has its own /tmp; see containers.tmp_mib in agent.yaml",
	"topologyplugin":           "jobs on several nodes are placed by the switches in node.features of agent.yaml (docs/nodes.md)",
	"unkillablestepprogram":    "a share is reused only once its memory on the GPU is free; see docs/gpu-health.md",
	"unkillablesteptimeout":    "a share is reused only once its memory on the GPU is free; see docs/gpu-health.md",
	"usepam":                   "having a job does not let a user log in; berth shell enters a job",
	"vsizefactor":              "memory is capped by control groups, address space is not",
	"waittime":                 "when one rank of a job on several nodes fails, the job ends",
}

// settings reads a line of cluster-wide settings.
func (s *Site) settings(l *line) {
	for _, p := range l.Pairs {
		fate, note := s.setting(p)
		s.say(l.At, "", p, fate, "%s", note)
	}
}

// setting takes one, or says why not.
func (s *Site) setting(p pair) (Fate, string) {
	switch key := strings.ToLower(p.Key); key {
	case "clustername":
		s.Cluster = p.Value
		return Taken, "cluster.id is chosen by berth cluster init"
	case "killwait":
		return s.seconds("jobs.grace", p.Value, 1, 3600)
	case "prologepilogtimeout":
		return s.seconds("jobs.hook_timeout", p.Value, 1, 3600)
	case "prolog", "epilog":
		if strings.ContainsAny(p.Value, "*?[") {
			return Dropped, "want one program, not a pattern: set jobs." + key + " in agent.yaml"
		}
		s.Jobs = append(s.Jobs, Setting{"jobs." + key, p.Value})
		return Taken, "jobs." + key + " in agent.yaml; it gets BERTH_* and SLURM_JOB_* variables, see docs/nodes.md"
	default:
		if why, ok := whyDropped(key); ok {
			return Dropped, why
		}
		return Unread, "is not a setting of slurm.conf 22.05"
	}
}

// seconds takes a time as a setting of the agents.
func (s *Site) seconds(key, v string, least, most int) (Fate, string) {
	n, err := strconv.Atoi(v)
	switch {
	case err != nil:
		return Unread, "is not a number of seconds"
	case n < least || n > most:
		return Dropped, fmt.Sprintf("%s in agent.yaml must be %ds to %ds", key, least, most)
	}
	s.Jobs = append(s.Jobs, Setting{key, fmt.Sprintf("%ds", n)})
	return Taken, key + " in agent.yaml"
}

// whyDropped says why a setting, in lower case, has no counterpart.
func whyDropped(key string) (string, bool) {
	if why, ok := particular[key]; ok {
		return why, true
	}
	for _, r := range reasons {
		for _, k := range strings.Fields(r.keys) {
			if strings.EqualFold(k, key) {
				return r.why, true
			}
		}
	}
	return "", false
}
