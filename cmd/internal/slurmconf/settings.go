package slurmconf

import (
	"fmt"
	"strconv"
	"strings"
)

// Why settings of the whole cluster are dropped, many for one reason.
const (
	whyDaemons  = "Berth's daemons have files of their own, coordinator.yaml and agent.yaml"
	whyAuth     = "daemons know each other by certificates, users are what the kernel says"
	whyNoDB     = "there is no database: the coordinators keep what ended"
	whyMeasured = "jobs are always measured"
	whyPlugins  = "there are no plugins of that kind"
	whyPower    = "idle nodes are powered down by power_saving in coordinator.yaml, see docs/power.md"
	whyLaunch   = "processes of a job are started by its agent, in a control group of its own"
	whyOrder    = "who goes first is said by the policies of the coordinators' configuration"
	whyLimits   = "the bounds are fixed: berth cluster status shows what there is"
	whyPredict  = "what a job does not ask for is predicted; see berth predict"
	whyPreempt  = "what may be preempted is said by job and policy; see docs/user-guide.md"
	whyOwnTime  = "Berth's daemons have times of their own"
	whyCores    = "cores are not bound by hand"
	whyBoth     = "Berth always accounts for cores, memory and shares of GPUs"
	whyNotOne   = "not supported here"
)

// reasons are the settings of slurm.conf 22.05, and some of versions around it,
// by why they are dropped.
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

// particular are settings with a reason to themselves, in lower case.
var particular = map[string]string{
	"accountingstorageenforce": "limits that are set are always enforced",
	"accountingstoragetres":    "GPU time is always accounted for, by the share that was used",
	"acctgatherenergytype":     "power is read from the cards",
	"acctgatherprofiletype":    "every job's use of its GPUs is profiled",
	"burstbuffertype":          "burst buffers are not managed",
	"disablerootjobs":          "jobs of root are refused unless users.allow_root is set in agent.yaml",
	"enforcepartlimits":        "a job that can never run in its partition is refused at submit",
	"epilogslurmctld":          "nothing runs on the coordinators for a job",
	"federationparameters":     "there is only one cluster",
	"frontendaddr":             "there are no front ends between users and nodes",
	"frontendname":             "there are no front ends between users and nodes",
	"healthcheckprogram":       "cards are checked before and after each job; a program of the site's is gpus.health.check in agent.yaml",
	"healthcheckinterval":      "cards are checked before and after each job, see gpus.health in agent.yaml",
	"healthchecknodestate":     "cards are checked before and after each job, see gpus.health in agent.yaml",
	"interactivestepoptions":   "berth shell opens a shell in a job",
	"jobcontainertype":         "an image job has its own /tmp, containers.tmp_mib in agent.yaml",
	"jobfileappend":            "output is appended to unless --open-mode=truncate",
	"jobrequeue":               "a job runs again when its node is lost if it says --requeue",
	"jobsubmitplugins":         "what a site wants to refuse stands in partitions and limits; nothing runs at submit",
	"killonbadexit":            "when one rank of a job on several nodes fails, the job ends",
	"licenses":                 "licenses are not managed",
	"maildomain":               "who gets mail is said by the job",
	"mailprog":                 "it is no setting of a file",
	"minjobage":                "jobs that ended are shown as long as the coordinators keep them",
	"mpidefault":               "ranks find each other by what the user guide says under Gangs",
	"mpiparams":                "ranks find each other by what the user guide says under Gangs",
	"overtimelimit":            "a job ends at its limit",
	"priorityfavorsmall":       "large jobs go first among equals, so that small ones fit around them",
	"privatedata":              "jobs are shown to everybody, their output to their owners",
	"proctracktype":            "jobs are contained by control groups, always",
	"prologflags":              "the prolog runs before the first process of a job, and the job is contained",
	"prologslurmctld":          "nothing runs on the coordinators for a job",
	"propagateresourcelimits":  "limits are the node's, see containers in agent.yaml",
	"requeueexit":              "an exit code requeues nothing",
	"requeueexithold":          "an exit code requeues nothing",
	"returntoservice":          "a node that comes back is used again once its cards pass their checks",
	"schedulertype":            "jobs are backfilled by what is predicted of them",
	"slurmctldhost":            "coordinators name each other in coordinator.yaml; three of them need no shared directory",
	"slurmctldtimeout":         "a new leader serves within seconds",
	"srunportrange":            "attached terminals go through the coordinators",
	"statesavelocation":        "coordinators keep their state on disks of their own, data.dir",
	"taskepilog":               "jobs.epilog in agent.yaml runs after each attempt, as root",
	"taskplugin":               "jobs are contained by control groups, always",
	"taskprolog":               "put what it exports into jobs.env of agent.yaml",
	"tmpfs":                    "an image job has its own /tmp, containers.tmp_mib in agent.yaml",
	"topologyplugin":           "jobs on several nodes are placed by what their agents' features say of switches (docs/nodes.md)",
	"unkillablestepprogram":    "a share is given out again only when its card's memory is free; see docs/gpu-health.md",
	"unkillablesteptimeout":    "a share is given out again only when its card's memory is free; see docs/gpu-health.md",
	"usepam":                   "nothing lets users log in because they have a job; berth shell enters one",
	"vsizefactor":              "memory is capped by control groups; addresses are not",
	"waittime":                 "when one rank of a job on several nodes fails, the job ends",
}

// settings reads a line of settings for the whole cluster.
func (s *Site) settings(l *line) {
	for _, p := range l.Pairs {
		fate, note := s.setting(p)
		s.say(l.At, "", p, fate, "%s", note)
	}
}

// setting takes one over, or says why not.
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
			return Dropped, "one program, not a pattern; jobs." + key + " in agent.yaml"
		}
		s.Jobs = append(s.Jobs, Setting{"jobs." + key, p.Value})
		return Taken, "jobs." + key + " in agent.yaml; it is told the job by BERTH_* and SLURM_JOB_*, see docs/nodes.md"
	default:
		if why, ok := whyDropped(key); ok {
			return Dropped, why
		}
		return Unread, "is no setting of slurm.conf 22.05"
	}
}

// seconds takes a time over into a setting of the agents.
func (s *Site) seconds(key, v string, least, most int) (Fate, string) {
	n, err := strconv.Atoi(v)
	switch {
	case err != nil:
		return Unread, "is no number of seconds"
	case n < least || n > most:
		return Dropped, fmt.Sprintf("%s in agent.yaml is %ds to %ds", key, least, most)
	}
	s.Jobs = append(s.Jobs, Setting{key, fmt.Sprintf("%ds", n)})
	return Taken, key + " in agent.yaml"
}

// whyDropped tells why a setting, in lower case, has no counterpart.
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
