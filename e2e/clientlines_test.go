package e2e

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// slurmClients are all that are tried, in the order of the table.
func slurmClients() []slurmClient {
	return slices.Concat(workflowClients(), libraryClients(), portalClients(), watchers())
}

// submitted is what most clients look for in the answer of sbatch.
const submitted = `Submitted batch job (\d+)`

// workflowClients are engines of workflows.
func workflowClients() []slurmClient {
	return []slurmClient{
		{
			name: "snakemake --slurm", version: "7.21", what: runToo,
			lines: func(s *clientSite) {
				s.find(`sinfo -o %P`, `(?m)^(\S+)\*$`)
				s.find(`sacctmgr -n -s list user "$USER" format=account%20`, `(?m)^ *science *$`)
				s.find(`sacct -nu "$USER" -o Account%20 | head -n1`, `^ *science *\n`)
				id := s.find(`sbatch --job-name 3f2c -o `+s.dir+`/%j.log --export=ALL -A science -p gpu -t 10 --mem 64 --ntasks=1 --cpus-per-task=1 -D `+s.dir+
					` --wrap="srun -n1 --cpu-bind=q echo rule"`, submitted)[1]
				s.until("sacct -X --parsable2 --noheader --format=JobIdRaw,State --name 3f2c", `(?m)^`+id+`\|COMPLETED$`)
				s.says("cat "+id+".log", "rule\n")
				s.find("scontrol -o show job "+s.running, `JobState=(RUNNING) `)
			},
			needs: "command -v snakemake", real: func(s *clientSite) {
				runSnakemake(s, "--slurm", "--default-resources", "slurm_account=science", "slurm_partition=gpu", "mem_mb=1000", "runtime=5")
			},
		},
		{
			name: "snakemake --cluster", version: "7.21", what: runToo,
			lines: func(s *clientSite) {
				id := s.find("sbatch -p gpu "+s.script("snakejob.rule.1.sh", "# properties = {}", "true"), `(\d+)\s*$`)[1]
				s.until(`sacct -j `+id+` --format State --noheader | head -1 | awk '{print $1}'`, `^COMPLETED\n$`)
			},
			needs: "command -v snakemake", real: func(s *clientSite) { runSnakemake(s, "--cluster", "sbatch -p gpu --mem=1000") },
		},
		{
			name: "Nextflow", version: "23.10", what: replayed,
			lines: func(s *clientSite) {
				id := s.find("sbatch "+s.script(".command.run", "#SBATCH -J nf-sayHello", "#SBATCH -o "+s.dir+"/.command.log", "#SBATCH --no-requeue", "#SBATCH --signal B:USR2@30",
					"#SBATCH -c 1", "#SBATCH -t 00:05:00", "#SBATCH --mem 64M", "#SBATCH -p gpu", "echo hello"), submitted)[1]
				s.until("squeue --noheader -o '%i %t' -t all -p gpu -u "+siteUser, `(?m)^`+id+` CD$`)
				s.find("squeue --noheader -o '%i %t' -t all -p gpu -u "+siteUser, `(?m)^`+s.running+` R$`)
				id = s.find("sbatch -H "+filepath.Join(s.dir, ".command.run"), submitted)[1]
				s.says("scancel "+id, "")
			},
		},
		{
			name: "Cromwell", version: "85", what: replayed,
			lines: func(s *clientSite) {
				id := s.find(`sbatch -J cromwell_a_b -D `+s.dir+` -o out -e err -t 10 -p gpu -c 1 --mem-per-cpu 64 --wrap "/bin/bash `+s.script("script", "exit 0")+`"`, `Submitted batch job (\d+).*`)[1]
				s.sh("squeue -j " + id)
				s.until("squeue -h -t all -o %t -j "+id, "CD")
				if r := s.try("squeue -j 99999999"); r.code != 1 { // as of one that ended more than five minutes ago
					s.t.Errorf("squeue -j of a job that is gone: exit code %d", r.code)
				}
				s.says("scancel "+s.find(`sbatch -H --wrap true`, submitted)[1], "")
			},
		},
		{
			name: "toil", version: "5.9", what: runToo, needs: importing("toil"), real: runToil,
			lines: func(s *clientSite) {
				config := s.sh("scontrol show config")
				for _, key := range []string{"SchedulerTimeSlice", "MinJobAge"} {
					if !strings.Contains(config, key+" ") {
						s.t.Errorf("scontrol show config lacks %s", key)
					}
				}
				id := s.find(`sbatch -J toil_job_1_sub -o `+s.dir+`/toil.%j.out -e `+s.dir+`/toil.%j.err --mem=64 --cpus-per-task=1 --time=0:10 --export=ALL --signal=B:INT@30 --wrap='exec true'`, submitted)[1]
				s.until("sacct -n -j "+id+","+s.failed+" --format JobIDRaw,State,ExitCode -P -S 1970-01-01", `(?m)^`+id+`\|COMPLETED\|0:0$`)
				s.find("sacct -n -j "+id+","+s.failed+" --format JobIDRaw,State,ExitCode -P -S 1970-01-01", `(?m)^`+s.failed+`\|FAILED\|3:0$`)
				s.find("squeue -h --format '%i %t %M'", `(?m)^`+s.running+` R \d+:\d\d$`)
				s.find("scontrol show job "+s.failed, `JobState=FAILED .*\n.* ExitCode=(3:0)`)
				s.find("sinfo -a -o '%P %G %l %p %c %m' --noheader", `(?m)^gpu\* gpu:T4:1 2:00:00 1 \d+ \d+$`)
			},
		},
		{
			name: "AiiDA", version: "2.5", what: replayed,
			lines: func(s *clientSite) {
				const format = "%i^^^%t^^^%r^^^%B^^^%u^^^%D^^^%C^^^%R^^^%P^^^%l^^^%M^^^%S^^^%j^^^%V"
				for _, id := range []string{s.running, s.held} {
					f := strings.Split(strings.TrimSpace(s.sh("SLURM_TIME_FORMAT='standard' squeue --noheader -o '"+format+"' --jobs="+id)), "^^^")
					if len(f) != 14 || f[0] != id || f[4] != siteUser || f[8] != "gpu" || slices.Contains(f, "") {
						s.t.Errorf("fields of job %s: %q", id, f)
					}
				}
				s.apart("sbatch '"+s.script("_aiidasubmit.sh", "#SBATCH --no-requeue", `#SBATCH --job-name="aiida-1"`, "#SBATCH --get-user-env", "#SBATCH --output=_scheduler-stdout.txt",
					"#SBATCH --error=_scheduler-stderr.txt", "#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1", "#SBATCH --time=00:05:00", "true")+"'", `(.*:\s*)?(Submitted batch job)\s+(?P<jobid>\d+)`)
				head, row, _ := strings.Cut(s.sh("sacct --format=AllocCPUS,Account,AssocID,AveCPU,AvePages,AveRSS,AveVMSize,Cluster,Comment,CPUTime,CPUTimeRAW,DerivedExitCode,Elapsed,Eligible,End,ExitCode,GID,Group,"+
					"JobID,JobName,MaxRSS,MaxRSSNode,MaxRSSTask,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,MinCPU,MinCPUNode,MinCPUTask,NCPUS,NNodes,NodeList,NTasks,Priority,Partition,QOSRAW,ReqCPUS,Reserved,"+
					"ResvCPU,ResvCPURAW,Start,State,Submit,Suspended,SystemCPU,Timelimit,TotalCPU,UID,User,UserCPU --parsable --jobs="+s.ended), "\n")
				row, _, _ = strings.Cut(row, "\n")
				if n := strings.Count(head, "|"); n != 50 || strings.Count(row, "|") != n {
					s.t.Errorf("sacct has %d heads and %d fields", n, strings.Count(row, "|"))
				}
				s.says("scancel "+s.find(`sbatch -H --wrap true`, submitted)[1], "")
			},
		},
	}
}

// libraryClients are libraries that submit from programs.
func libraryClients() []slurmClient {
	return []slurmClient{
		{
			name: "dask-jobqueue", version: "2025-10", what: sourceToo, needs: importing("dask_jobqueue"), real: runDask,
			lines: func(s *clientSite) {
				id := s.find("sbatch "+s.script("dask.sh", "#!/usr/bin/env bash", "", "#SBATCH -J dask-worker", "#SBATCH -p gpu", "#SBATCH -A science", "#SBATCH -n 1", "#SBATCH --cpus-per-task=1",
					"#SBATCH --mem=64M", "#SBATCH -t 00:30:00", "sleep 600"), `(?P<job_id>\d+)`)[1]
				s.until("squeue -h -o %t -j "+id, "R|PD")
				s.says("scancel "+id, "")
			},
		},
		{
			name: "parsl", version: "1.3", what: sourceToo, needs: importing("parsl.providers"), real: runParsl,
			lines: func(s *clientSite) {
				id := s.find("sbatch "+s.script("parsl.block-0.sh", "#SBATCH --job-name=parsl.block-0", "#SBATCH --output=parsl.stdout", "#SBATCH --error=parsl.stderr", "#SBATCH --nodes=1",
					"#SBATCH --time=10", "#SBATCH --ntasks-per-node=1", "export CORES=$SLURM_CPUS_ON_NODE", "true"), `Submitted batch job (?P<id>[0-9]+)`)[1]
				s.find(fmt.Sprintf("squeue --noheader --format='%%i %%t' --job '%s,%s'", s.running, id), `(?m)^`+s.running+` R$`)
				s.until("sacct -X --noheader --format='jobid,state' --job '"+id+"'", `^`+id+` +COMPLETED *\n$`)
			},
		},
		{
			name: "PSI/J", version: "0.9", what: sourceToo, needs: importing("psij"), real: runPSIJ,
			lines: func(s *clientSite) {
				id := strings.Fields(s.sh("sbatch " + s.script("psij.job", "#SBATCH --job-name=test", "#SBATCH --export=ALL", "#SBATCH --nodes=1", "#SBATCH --ntasks=1", "#SBATCH --time=0:05:00", "srun -n1 true")))[3]
				s.until("squeue -O JobArrayID,StateCompact,Reason -t all --me", `(?m)^`+id+` +CD +None *$`)
				s.find("squeue -O JobArrayID,StateCompact,Reason -t all --me", `(?m)^`+s.held+` +PD +JobHeldUser *$`)
				s.find("squeue --me -o '%i' -h -r -t BF,CA,CD,CF,CG,DL,F,NF,OOM,PD,PR,R,RD,RF,RH,RQ,RS,RV,SI,SE,SO,ST,S,TO", `(?m)^`+s.array+`_1$`)
				s.says("scancel -Q "+id, "")
			},
		},
		{
			name: "rslurm", version: "0.6", what: runToo, needs: `Rscript -e "library(rslurm)"`, real: runRslurm,
			lines: func(s *clientSite) {
				s.find("sbatch "+s.script("submit.sh", "#", "#SBATCH --array=0-1", "#SBATCH --cpus-per-task=1", "#SBATCH --job-name=rslurm1", "#SBATCH --output=slurm_%a.out", "sleep 600"), submitted)
				s.until("squeue -n rslurm1", `rslurm1`)
				s.says("scancel -n rslurm1", "")
				s.until("squeue -n rslurm1 | tail -n +2 | wc -l", `^0\n$`)
			},
		},
		{
			name: "submitit", version: "1.5", what: sourceToo, needs: importing("submitit"), real: runSubmitit,
			lines: func(s *clientSite) {
				id := s.apart("sbatch "+s.script("submission.sh", "#SBATCH --cpus-per-task=1", "#SBATCH --error="+s.dir+"/%j_0_log.err", "#SBATCH --job-name=submitit", "#SBATCH --nodes=1",
					"#SBATCH --ntasks-per-node=1", "#SBATCH --open-mode=append", "#SBATCH --output="+s.dir+"/%j_0_log.out", "#SBATCH --signal=USR2@90", "#SBATCH --time=5", "#SBATCH --wckey=submitit",
					"export SUBMITIT_EXECUTOR=slurm", "for try in 1 2; do", "srun --unbuffered --output "+s.dir+"/%j_%t_log.out --error "+s.dir+"/%j_%t_log.err sh -c 'echo try on $SLURM_OPEN_MODE'", "done"), `job (?P<id>[0-9]+)`)[1]
				out := ""
				s.c.eventually("submitit's job", func() bool {
					out = s.sh("sacct -o JobID,State,NodeList --parsable2 -j " + s.array + " -j " + id)
					return strings.Contains(out, "\n"+id+"|COMPLETED|n")
				})
				if !strings.HasPrefix(out, "JobID|State|NodeList\n") || !strings.Contains(out, "\n"+s.array+"_2|COMPLETED|n") {
					s.t.Errorf("sacct of two -j: %q", out)
				}
				s.says("cat "+id+"_0_log.out", "try on a\ntry on a\n")
				s.says("scontrol show hostnames n[1-2]", "n1\nn2\n")
				s.says("scancel "+s.find("sbatch -H --wrap true", submitted)[1], "")
			},
		},
		{
			name: "R batchtools", version: "0.9.16", what: runToo, needs: `Rscript -e "library(batchtools)"`, real: runBatchtools,
			lines: func(s *clientSite) {
				id := strings.Split(strings.TrimSpace(s.sh("sbatch "+s.script("job.sh", "#SBATCH --job-name=bt", "#SBATCH --output="+s.dir+"/bt.log", "#SBATCH --error="+s.dir+"/bt.log", "#SBATCH --time=5", "#SBATCH --ntasks=1",
					"#SBATCH --cpus-per-task=1", "#SBATCH --mem-per-cpu=64", "true"))), " ")[3]
				s.find("squeue -h -o %i -u $USER -t PD -r", `(?m)^`+s.held+`$`)
				s.find("squeue -h -o %i -u $USER -t R,S,CG,RS,SI,SO,ST -r", `(?m)^`+s.running+`$`)
				s.sh("squeue -h -o %i -u $USER -t PD,RD,RF,RH,RQ,RV,SE")
				s.until("sacct -X -n -o state -j "+id, "COMPLETED")
			},
		},
		{
			name: "Open MPI in sbatch and salloc", version: "4.1", what: runToo, needs: "command -v mpicc.openmpi && command -v mpirun.openmpi", real: runOpenMPI,
			lines: func(s *clientSite) {
				s.says(`salloc -Q -N2 -n3 sh -c 'echo $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE $SLURM_NTASKS; srun --ntasks-per-node=1 --kill-on-bad-exit --nodes=2 --nodelist=n1,n2 --ntasks=2 hostname >orteds; wc -l <orteds'`, "n[1-2] 2,1 3\n2\n")
			},
		},
		{
			name: "MPICH hydra", version: "4.0", what: runToo, needs: "command -v mpicc.mpich && command -v mpiexec.mpich", real: runMPICH,
			lines: func(s *clientSite) {
				s.says(`salloc -Q -N2 -n2 sh -c 'echo $SLURM_NODELIST $SLURM_TASKS_PER_NODE; srun --nodelist n1,n2 -N 2 -n 2 --input none -l echo proxy | sort'`, "n[1-2] 1(x2)\n0: proxy\n1: proxy\n")
			},
		},
	}
}

// rows reads what a client reads as CSV with these marks between fields.
func (s *clientSite) rows(line string, comma rune) [][]string {
	s.t.Helper()
	r := csv.NewReader(strings.NewReader(s.sh(line)))
	r.Comma, r.LazyQuotes = comma, true
	rows, err := r.ReadAll()
	if err != nil || len(rows) == 0 {
		s.t.Errorf("%s: %v, %d rows", line, err, len(rows))
		return [][]string{nil}
	}
	return rows
}

// object reads what a client reads as JSON.
func (s *clientSite) object(line string) map[string]any {
	s.t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(s.sh(line)), &out); err != nil {
		s.t.Errorf("%s: %v", line, err)
	}
	return out
}
