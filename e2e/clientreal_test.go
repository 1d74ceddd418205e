package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// clientSources is the environment of clients that are not installed but run from their
// sources, which lie in the folder that $BERTH_CLIENTS names: submitit, parsl,
// psij-python, dask-jobqueue, reportseff and Slurm_tools, as their repositories have them.
func clientSources() []string {
	from := os.Getenv("BERTH_CLIENTS")
	if from == "" {
		return nil
	}
	var path []string
	for _, dir := range []string{"submitit", "parsl", "psij-python/src", "dask-jobqueue", "reportseff/src"} {
		path = append(path, filepath.Join(from, dir))
	}
	return []string{"BERTH_CLIENTS=" + from, "PYTHONPATH=" + strings.Join(path, ":")}
}

// importing is a line that succeeds where Python has a module.
func importing(module string) string { return "/usr/bin/python3 -c 'import " + module + "'" }

// place makes a folder for a client and copies files of testdata there.
func (s *clientSite) place(name string, files ...string) string {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o777); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		write(s.t, filepath.Join(dir, f), read(s.t, filepath.Join("testdata", "clients", f)))
	}
	return dir
}

// itself runs a client in a folder; what it prints must be this.
func (s *clientSite) itself(dir, line, want string) {
	s.t.Helper()
	if r := s.try("cd " + dir + " && " + line); r.code != 0 || r.stdout != want {
		s.t.Errorf("%s: exit code %d, printed %q, want %q: %.4000s", line, r.code, r.stdout, want, r.stderr)
	}
}

// runSnakemake has snakemake itself make a file by a job.
func runSnakemake(s *clientSite, args ...string) {
	s.t.Helper()
	dir := filepath.Join(s.dir, strings.TrimLeft(args[0], "-")+"-run")
	if err := os.Mkdir(dir, 0o777); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		s.t.Fatal(err)
	}
	write(s.t, filepath.Join(dir, "Snakefile"), "rule all:\n  input: 'out.txt'\nrule one:\n  output: 'out.txt'\n  shell: 'echo made > {output}'\n")
	quoted := []string{}
	for _, a := range args {
		quoted = append(quoted, fmt.Sprintf("'%s'", a))
	}
	r := s.try("cd " + dir + " && snakemake -j1 --latency-wait 60 " + strings.Join(quoted, " "))
	if out, err := os.ReadFile(filepath.Join(dir, "out.txt")); err != nil || string(out) != "made\n" || r.code != 0 {
		s.t.Errorf("snakemake: exit code %d, made %q: %s%s", r.code, out, r.stdout, r.stderr)
	}
}

func runToil(s *clientSite) {
	s.itself(s.place("toil", "toil_run.py"), "/usr/bin/python3 toil_run.py", "['made by a', 'made by b']\n")
}

func runDask(s *clientSite) {
	s.itself(s.place("dask", "dask_run.py"), "/usr/bin/python3 dask_run.py", "[0, 1, 4, 9]\n")
}

func runParsl(s *clientSite) {
	s.itself(s.place("parsl", "parsl_run.py"), "/usr/bin/python3 parsl_run.py", "RUNNING [True]\nCOMPLETED\n")
}

func runPSIJ(s *clientSite) {
	s.itself(s.place("psij", "psij_run.py"), "/usr/bin/python3 psij_run.py", "COMPLETED ['hello', 'hello']\nFAILED 1\nCANCELED\n")
}

func runSubmitit(s *clientSite) {
	s.itself(s.place("submitit", "submitit_run.py"), "/usr/bin/python3 submitit_run.py", "tasks [(5, 0), (5, 1)]\narray [1, 4, 9]\ncancelled True\nfailed True\n")
}

func runRslurm(s *clientSite) {
	s.itself(s.place("rslurm", "rslurm.R"), "Rscript rslurm.R | grep -v ^Submitted", "sums 6 8 10 12 \ncompleted FALSE \ncancelled TRUE \n")
}

func runBatchtools(s *clientSite) {
	s.itself(s.place("batchtools", "batchtools.R", "slurm.tmpl"), "Rscript batchtools.R", "results TRUE 1 4 9 \non system 2 \nkilled TRUE TRUE \n")
}

// ranks are what four ranks print, in order.
const ranks = "rank 0 of 4, sum 6\nrank 1 of 4, sum 6\nrank 2 of 4, sum 6\nrank 3 of 4, sum 6\n"

// runOpenMPI has ranks on two nodes speak by TCP: both are this machine, and Open MPI
// takes it for granted that ranks of different nodes share no memory.
func runOpenMPI(s *clientSite) {
	dir := s.place("openmpi", "mpi.c")
	s.itself(dir, "mpicc.openmpi mpi.c -o ring", "")
	s.itself(dir, "salloc -Q -N2 -n4 mpirun.openmpi --mca btl self,tcp ./ring | sort", ranks)
	s.itself(dir, "sbatch -Q -W -N2 -n4 -o batch.out --wrap 'mpirun.openmpi --mca btl self,tcp ./ring' >id && sort batch.out", ranks)
}

func runMPICH(s *clientSite) {
	dir := s.place("mpich", "mpi.c")
	s.itself(dir, "mpicc.mpich mpi.c -o ring", "")
	s.itself(dir, "salloc -Q -N2 -n4 mpiexec.mpich ./ring | sort", ranks)
	s.itself(dir, "sbatch -Q -W -N2 -n4 -o batch.out --wrap 'mpiexec.mpich ./ring' >id && sort batch.out", ranks)
}

// runReportseff has it print the efficiency of a job.
func runReportseff(s *clientSite) {
	s.find("/usr/bin/python3 -c 'from reportseff.console import main; main()' --no-color "+s.failed, `(?m)^ *`+s.failed+` +FAILED +\d\d:\d\d:\d\d `)
}

// runShowpartitions has it list the partition with its cards.
func runShowpartitions(s *clientSite) {
	s.find("bash $BERTH_CLIENTS/Slurm_tools/partitions/showpartitions -g", `(?m)^gpu:\* +up +2 .* gpu:T4:1\(1:`)
}
