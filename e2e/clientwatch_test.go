package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// portalClients are portals and gateways, which show a site's queue.
func portalClients() []slurmClient {
	return []slurmClient{
		{
			name: "Open OnDemand", version: "ood_core 0.24", what: replayed,
			lines: func(s *clientSite) {
				for _, id := range []string{s.running, s.held} {
					names := "account job_id exec_host min_cpus cpus min_tmp_disk nodes end_time dependency features array_job_id group_name group_id over_subscribe sockets_per_node array_job_task_id cores_per_socket job_name threads_per_core comment " +
						"array_task_id time_limit time_left min_memory time_used req_node node_list command contiguous qos partition priority reason start_time state_compact state user user_id reservation submit_time wckey licenses excluded_nodes core_specialization nice scheduled_nodes sockets_cores_threads work_dir gres"
					fields := "%a %A %B %c %C %d %D %e %E %f %F %g %G %h %H %i %I %j %J %k %K %l %L %m %M %n %N %o %O %q %P %Q %r %S %t %T %u %U %v %V %w %W %x %X %y %Y %z %Z %b"
					out := s.sh("squeue --all --states=all --noconvert -o $'\\x1E" + join(fields, `\x1F`) + "' -j " + id)
					_, out, _ = strings.Cut(out, "\n")
					got := strings.Split(strings.TrimSpace(strings.Trim(out, "\x1E")), "\x1F")
					if n := len(strings.Fields(names)); len(got) != n || got[1] != id || got[36] != siteUser {
						s.t.Errorf("%d fields of job %s, want %d: %q", len(got), id, n, got)
					}
					long := strings.Split(strings.TrimRight(s.sh("squeue --all --states=all --noconvert -h -O $'Account:\\x1F,JobID:\\x1F,State:\\x1F,UserName:\\x1F,tres-per-node:\\x1F,MinMemory:\\x1F,' -j "+id), "\n"), "\x1F")
					if len(long) != 7 || long[0] != "science" || long[1] != id || long[3] != siteUser || long[5] != "64M" {
						s.t.Errorf("long fields of job %s: %q", id, long)
					}
				}
				s.find("sinfo -aho %A/%D/%C", `^(\d+)/(\d+)/(\d+)/(\d+)/(\d+)/(\d+)/(\d+)\n$`)
				s.find("sinfo -ahNO ,nodehost,gres:40,gresused:40 | sort -u", `(?m)^n1 +gpu:T4:1 +gpu:T4:\d\(IDX:(0|N/A)\) *$`)
				s.find("scontrol show part -o", `(?m)^PartitionName=gpu .*AllowAccounts=ALL AllowQos=ALL .* State=UP .* TRES=cpu=\d+,mem=\S+,node=2,billing=\d+,gres/gpu=2 *$`)
				s.says("sacctmgr -nP show users withassoc format=account,cluster,partition,qos where user="+siteUser, "science|berth||\n")
				s.find("sacct -P --units=G -o JobID,JobName,State,Elapsed,ReqMem,MaxRSS,AllocTRES -j "+s.ended, `(?m)^`+s.ended+`\|done\|COMPLETED\|\d\d:\d\d:\d\d\|0.06G\|`)
				s.find("sbatch -D "+s.dir+" -J ood --parsable --export NONE --wrap true", `^(\d+)\n$`)
				s.says("scontrol hold "+s.held, "")
			},
		},
		{
			name: "NorduGrid ARC", version: "6.17", what: replayed,
			lines: func(s *clientSite) {
				id := s.apart("sbatch "+s.script("arc.sh", "#SBATCH --no-requeue", "#SBATCH -e "+s.dir+"/arc.err", "#SBATCH -o "+s.dir+"/arc.out", "#SBATCH -p gpu", "#SBATCH --nice=50", "#SBATCH -J 'grid'",
					"#SBATCH --get-user-env=10L", "#SBATCH -n 1", "#SBATCH  ", "#SBATCH -t 5:0", "#SBATCH --mem-per-cpu=64", "true")+" | grep 'Submitted batch job'", submitted)[1]
				s.find(`sinfo -a -h -o "PartitionName=%P TotalCPUs=%C TotalNodes=%D MaxTime=%l DefTime=%L"`, `(?m)^PartitionName=gpu\* TotalCPUs=\d+/\d+/\d+/\d+ TotalNodes=2 MaxTime=2:00:00 DefTime=\S+$`)
				s.find(`sinfo -a -h -o "cpuinfo=%C"`, `^cpuinfo=(\d+)/(\d+)/(\d+)/(\d+)\n`)
				s.find(`squeue -a -h -t all -o "JobId=%i TimeUsed=%M Partition=%P JobState=%T ReqNodes=%D ReqCPUs=%C TimeLimit=%l Name=%j NodeList=%N"`,
					`(?m)^JobId=`+s.running+` TimeUsed=\S+ Partition=gpu JobState=RUNNING ReqNodes=1 ReqCPUs=1 TimeLimit=30:00 Name=work NodeList=n[12]$`)
				s.find("scontrol show node --oneliner", `(?m)^NodeName=n1 .*CPUTot=(\d+) .*RealMemory=(\d+) .*State=(\S+) .*Sockets=|(?m)^NodeName=n1 `)
				s.find("scontrol show config", `(?m)^SLURM_VERSION +=|^ClusterName +=`)
				s.until("squeue -a -h -o %i:%T -t all -j "+id+","+s.failed, `(?m)^`+id+`:COMPLETED$`)
				s.find("scontrol -o show job "+s.failed, `JobState=FAILED .*ExitCode=3:0 .*StartTime=\S+ EndTime=\S+ `)
				s.find("sacct -j "+s.failed+" -o End,Start,State,ExitCode,CPUTimeRAW,MaxRSS,NCPUS -P | tail -n 1", `^\S+\|\S+\|FAILED\|3:0\|\d+\|`)
				s.says("scancel "+s.find("sbatch -H --wrap true", submitted)[1], "")
			},
		},
		{
			name: "batchspawner", version: "1.2", what: replayed,
			lines: func(s *clientSite) {
				id := s.apart("sbatch --parsable < "+s.script("spawn.sh", "#SBATCH --output="+s.dir+"/jupyterhub_slurmspawner_%j.log", "#SBATCH --job-name=spawner-jupyterhub", "#SBATCH --chdir="+s.dir,
					"#SBATCH --export=PATH", "#SBATCH --get-user-env=L", "#SBATCH --partition=gpu", "#SBATCH --time=0:10:00", "#SBATCH --mem=64", "#SBATCH --cpus-per-task=1", "#SBATCH", "set -euo pipefail", "trap 'echo SIGTERM received' TERM", "srun sleep 600"), `^(\d+)`)[1]
				s.until(`squeue -h -j `+id+` -o "%T %B"`, `^(?:RUNNING|COMPLETING) .*\s*((?:[\w_-]+\.?)+)\n$`)
				s.find(`squeue -h -j `+s.held+` -o "%T %B"`, `^(?:PENDING|CONFIGURING)`)
				s.says("scancel "+id, "")
			},
		},
	}
}

// accounted are clients that read what jobs used.
func accounted() []slurmClient {
	return []slurmClient{
		{
			name: "reportseff", version: "2026-03", what: sourceToo, needs: importing("reportseff.console"), real: runReportseff,
			lines: func(s *clientSite) {
				out := s.sh("sacct -P -n --format=AdminComment,AllocCPUS,Elapsed,JobID,JobIDRaw,MaxRSS,NNodes,REQMEM,State,Timelimit,TotalCPU --jobs=" + s.ended)
				job := regexp.MustCompile(`(?m)^\|1\|(\d+-)?\d\d:\d\d:\d\d\|` + s.ended + `\|` + s.ended + `\|[^|]*\|1\|64M\|COMPLETED\|00:30:00\|[\d:.-]+$`)
				batch := regexp.MustCompile(`(?m)^\|1\|[\d:-]+\|` + s.ended + `\.batch\|` + s.ended + `\.batch\|(\d+K)?\|1\|\|COMPLETED\|\|[\d:.-]+$`)
				if !job.MatchString(out) || !batch.MatchString(out) {
					s.t.Errorf("sacct: %q", out)
				}
			},
		},
		{
			name: "jobstats", version: "2023", what: replayed,
			lines: func(s *clientSite) {
				rows := s.rows("SLURM_TIME_FORMAT=%s sacct -P -X -o jobidraw,start,end,cluster,alloctres,admincomment,user,account,state,nnodes,ncpus,reqmem,qos,partition,timelimitraw,jobname -j "+s.running, '|')
				if len(rows) != 2 || rows[0][0] != "JobIDRaw" || rows[1][0] != s.running || rows[1][2] != "Unknown" || rows[1][8] != "RUNNING" || !strings.Contains(rows[1][4], "gres/gpu=1") {
					s.t.Fatalf("rows: %q", rows)
				}
				if at, err := strconv.ParseInt(rows[1][1], 10, 64); err != nil || at < 1_600_000_000 {
					s.t.Errorf("start: %q", rows[1][1])
				}
			},
		},
		{
			name: "birc slurm-utils (jobinfo)", version: "2022", what: replayed, partly: "`sstat` answers in words: steps of running jobs are not measured one by one",
			lines: func(s *clientSite) {
				s.find("sacct --version", `^\S+ 22\.05\.\d+\n$`)
				s.find("sacct --format=JobName,User,Account,Partition,NodeList,AllocCPUS,State,ExitCode,Submit,Start,End,Elapsed,Timelimit,CPUTime,TotalCPU,MaxRSS,ReqMem,MaxDiskRead,MaxDiskWrite,WorkDir --parsable2 --noheader -j "+s.ended, `^done\|`+siteUser+`\|science\|gpu\|`)
				s.refuses("sstat --noheader -P -a --format=MaxRSS,MaxDiskWrite,MaxDiskRead -j "+s.running, "berth show")
			},
		},
		{
			name: "gwf", version: "2.0", what: replayed,
			lines: func(s *clientSite) {
				id := s.find("sbatch --parsable < "+s.script("gwf.sh", "#SBATCH --mem=64", "#SBATCH -c 1", "#SBATCH -t 00:10:00", "true"), `^(\d+)\n$`)[1]
				s.find("squeue --noheader --format='%i;%t;%E'", `(?m)^`+s.held+`;PD;\(null\)$`)
				s.until("sacct --noheader --parsable2 -X -o jobid,state -j "+id, `^`+id+`\|COMPLETED\n$`)
				s.says("scancel "+s.find("sbatch --parsable -H --wrap true", `^(\d+)`)[1], "")
			},
		},
	}
}

// list reads the objects under a key of what a client reads as JSON.
func (s *clientSite) list(line, key string) (out []map[string]any) {
	s.t.Helper()
	all, ok := s.object(line)[key].([]any)
	if !ok || len(all) == 0 {
		s.t.Errorf("%s: no %s", line, key)
	}
	for _, x := range all {
		o, _ := x.(map[string]any)
		out = append(out, o)
	}
	return out
}

// isKind reports whether a value of JSON is what a client of fixed types can read.
func isKind(v any, kind string) bool {
	switch v.(type) {
	case float64:
		return kind == "number"
	case string:
		return kind == "string"
	case []any:
		return kind == "list"
	}
	return false
}

// watchers are programs that watch a site.
func watchers() []slurmClient {
	return append(accounted(), []slurmClient{
		{
			name: "prometheus-slurm-exporter (vpenso)", version: "0.20", what: replayed,
			lines: func(s *clientSite) {
				s.find("squeue -a -r -h -o '%A|%a|%T|%C'", `(?m)^`+s.running+`\|science\|RUNNING\|1$`)
				s.find("squeue -a -r -h -o %A,%T,%r --states=all", `(?m)^`+s.held+`,PENDING,JobHeldUser$`)
				s.find("sinfo -h -o %D,%T", `(?m)^\d+,(idle|mixed|allocated)$`)
				s.find("sinfo -h -o %C", `^\d+/\d+/\d+/\d+\n$`)
				s.find("sinfo -h -N -O NodeList,AllocMem,Memory,CPUsState,StateLong", `(?m)^n1 +\d+ +\d+ +\d+/\d+/\d+/\d+ +(idle|mixed|allocated) *$`)
				s.find("sinfo -a -h '--Format=Nodes: ,Gres:|,GresUsed:'", `(?m)^\d+ gpu:T4:1\|gpu:T4:\d\(IDX:(0|N/A)\)$`)
				s.find("sinfo -h -o %R,%C", `(?m)^gpu,\d+/\d+/\d+/\d+$`)
				s.find("squeue -a -r -h -o %P --states=PENDING", `(?m)^gpu$`)
				s.find("sshare -n -P -o account,fairshare", `(?m)^ *science\|`)
				out := s.sh("sdiag")
				for _, key := range []string{`(?m)^Server thread count: *\d+$`, `(?m)^Agent queue size: *\d+$`, `(?m)^DBD Agent queue size: *\d+$`, `(?m)^\s+Last cycle: *\d+$`, `(?m)^\s+Mean cycle: *\d+$`,
					`(?m)^\s+Mean depth cycle: *\d+$`, `(?m)^\s+Total backfilled jobs \(since last slurm start\): *\d+$`} {
					if !regexp.MustCompile(key).MatchString(out) {
						s.t.Errorf("sdiag has no %s", key)
					}
				}
			},
		},
		{
			name: "prometheus-slurm-exporter (rivos)", version: "1.0", what: replayed, partly: "`sdiag --json` is not there, as in Slurm 22.05; jobs, nodes and accounting are",
			lines: func(s *clientSite) {
				s.refuses("sdiag --json", "unrecognized option '--json'")
				var states []string
				for _, j := range s.list("squeue --states=all --json", "jobs") {
					for key, kind := range map[string]string{"job_id": "number", "account": "string", "user_name": "string", "partition": "string", "job_state": "string", "end_time": "number", "features": "string"} {
						if !isKind(j[key], kind) {
							s.t.Errorf("%s of a job is %v", key, j[key])
						}
					}
					states = append(states, fmt.Sprintf("%.0f %s", j["job_id"], j["job_state"]))
				}
				if text := strings.Join(states, "\n"); !strings.Contains(text, s.running+" RUNNING") || !strings.Contains(text, s.failed+" FAILED") {
					s.t.Errorf("jobs: %s", text)
				}
				for _, n := range s.list("sinfo --json", "nodes") {
					for key, kind := range map[string]string{"hostname": "string", "real_memory": "number", "free_memory": "number", "alloc_memory": "number", "cpus": "number", "alloc_cpus": "number", "idle_cpus": "number", "state": "string", "weight": "number", "partitions": "list"} {
						if !isKind(n[key], kind) {
							s.t.Errorf("%s of a node is %v", key, n[key])
						}
					}
				}
				for _, j := range s.list("sacct --json -j "+s.ended, "jobs") {
					state, _ := j["state"].(map[string]any)
					when, _ := j["time"].(map[string]any)
					tres, _ := j["tres"].(map[string]any)
					if state["current"] != "COMPLETED" || !isKind(when["elapsed"], "number") || !isKind(tres["allocated"], "list") {
						s.t.Errorf("sacct: %v", j)
					}
				}
			},
		},
		{
			name: "Slurm_tools showpartitions", version: "2026-08", what: sourceToo, needs: "test -r $BERTH_CLIENTS/Slurm_tools/partitions/showpartitions", real: runShowpartitions,
			lines: func(s *clientSite) {
				s.find(`sinfo --hide --exact --noheader -o "%P %a %D %c %m %l %G %f"`, `(?m)^gpu\* up 2 \d+ \d+ 2:00:00 gpu:T4:1 \(null\)$`)
				s.find(`sinfo --hide --noheader -o "%R %F %C"`, `(?m)^gpu \d+/\d+/\d+/2 \d+/\d+/\d+/\d+$`)
				s.find(`squeue --hide --noheader --states=PENDING -o "%P %C %D %r"`, `(?m)^gpu 1 1 JobHeldUser$`)
				s.find("scontrol show partition", `(?m)^ +State=UP TotalCPUs=\d+ TotalNodes=2 `)
			},
		},
		{
			name: "Slurm_tools psjob", version: "2023", what: replayed,
			lines: func(s *clientSite) {
				s.says("squeue -h -j "+s.running+" -O State:.10", "   RUNNING\n")
				s.find("squeue -h -j "+s.running+" -O State:.,NodeList:", `RUNNING.*n[12]`)
				s.find("scontrol -o show job "+s.running, ` NodeList=(n[12]) `)
			},
		},
		{
			name: "Slurm_tools showuserlimits", version: "2023", what: replayed, partly: "`scontrol show assoc_mgr` answers in words: what is used of limits is in `berth quota list`, the limits in `sacctmgr show assoc`",
			lines: func(s *clientSite) {
				s.find("sacctmgr -nP show assoc where user="+siteUser+" format=cluster,account,user", `(?m)^berth\|science\|`+siteUser+`$`)
				s.refuses("scontrol -o show assoc_mgr users="+siteUser+" flags=assoc", "berth quota list")
			},
		},
		{
			name: "turm", version: "0.7", what: replayed,
			lines: func(s *clientSite) {
				const mark = "###turm###"
				fields := "jobid name state username timeused tres-alloc partition nodelist stdout stderr command statecompact reason ArrayJobID ArrayTaskID NodeList WorkDir"
				var found bool
				for line := range strings.Lines(s.sh("squeue --array --noheader --Format '" + join(fields, ":"+mark+",") + ":" + mark + "'")) {
					f := strings.Split(strings.TrimRight(line, "\n"), mark)
					if len(f) != 18 {
						s.t.Errorf("%d fields: %q", len(f), line)
					}
					found = found || f[0] == s.running && f[2] == "RUNNING" && strings.Contains(f[5], "gres/gpu=1") && strings.HasSuffix(f[8], fmt.Sprintf("slurm-%s.out", s.running))
				}
				if !found {
					s.t.Errorf("job %s is not there", s.running)
				}
			},
		},
	}...)
}
