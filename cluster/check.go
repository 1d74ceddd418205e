package cluster

import (
	"path"
	"strings"
	"time"
)

// Check tells whether s is a request that some cluster could run. It returns
// the first fault as an *Error of CodeInvalid that names the field.
func (s *Spec) Check() error {
	for _, f := range []func() error{s.checkCommand, s.checkEnv, s.checkPaths, s.checkSizes, s.checkConflicts} {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) checkCommand() error {
	if err := CheckJobName(s.Name); err != nil {
		return err
	}
	if len(s.Command) == 0 || s.Command[0] == "" {
		return Errorf(CodeInvalid, "command: is missing; give the program after --")
	}
	if len(s.Command) > MaxArgs {
		return Errorf(CodeInvalid, "command: %d arguments, at most %d are allowed; put them into a script", len(s.Command), MaxArgs)
	}
	total := 0
	for i, a := range s.Command {
		if strings.IndexByte(a, 0) >= 0 {
			return Errorf(CodeInvalid, "command: argument %d holds a NUL byte", i)
		}
		total += len(a) + 1
	}
	if total > MaxArgBytes {
		return Errorf(CodeInvalid, "command: %d bytes of arguments, at most %d are allowed; put them into a script", total, MaxArgBytes)
	}
	return nil
}

// reservedEnv begins the names that Berth itself sets.
const reservedEnv = "BERTH_"

func (s *Spec) checkEnv() error {
	if len(s.Env) > MaxEnv {
		return Errorf(CodeInvalid, "env: %d variables, at most %d are allowed", len(s.Env), MaxEnv)
	}
	for i, line := range s.Env {
		key, _, ok := strings.Cut(line, "=")
		switch {
		case !ok || key == "":
			return Errorf(CodeInvalid, "env[%d] %s: must be NAME=value", i, quoteShort(line))
		case strings.IndexByte(line, 0) >= 0:
			return Errorf(CodeInvalid, "env[%d] %q: holds a NUL byte", i, key)
		case len(line) > MaxEnvLine:
			return Errorf(CodeInvalid, "env[%d] %s: %d bytes, at most %d are allowed", i, quoteShort(key), len(line), MaxEnvLine)
		case strings.HasPrefix(key, reservedEnv):
			return Errorf(CodeInvalid, "env[%d] %q: names beginning with %s are set by Berth itself", i, key, reservedEnv)
		}
	}
	return nil
}

func (s *Spec) checkPaths() error {
	if s.Dir != "" {
		if !path.IsAbs(s.Dir) || path.Clean(s.Dir) != s.Dir {
			return Errorf(CodeInvalid, "dir %s: must be an absolute path without '..', '.' or double slashes", quoteShort(s.Dir))
		}
		for _, bad := range []string{"/proc", "/sys", "/dev"} {
			if s.Dir == bad || strings.HasPrefix(s.Dir, bad+"/") {
				return Errorf(CodeInvalid, "dir %q: may not lie under %s", s.Dir, bad)
			}
		}
	}
	for _, p := range []struct{ field, v string }{
		{"stdin", s.Stdin}, {"stdout", s.Stdout}, {"stderr", s.Stderr}, {"dir", s.Dir}, {"image", s.Image},
	} {
		if len(p.v) > MaxPathLen {
			return Errorf(CodeInvalid, "%s: %d bytes, at most %d are allowed", p.field, len(p.v), MaxPathLen)
		}
		if strings.ContainsAny(p.v, "\x00\n\r\x1b") {
			return Errorf(CodeInvalid, "%s %q: holds a control character", p.field, p.v)
		}
	}
	if len(s.Comment) > 1024 {
		return Errorf(CodeInvalid, "comment: %d bytes, at most 1024 are allowed", len(s.Comment))
	}
	return nil
}

func (s *Spec) checkSizes() error {
	for _, v := range []struct {
		field    string
		got, max int64
		unit     string
	}{
		{"gpus", int64(s.GPUs), MaxGPUsPerJob, ""},
		{"gpu_mem", s.GPUMemMiB, MaxMemMiB, " MiB"},
		{"gpu_util", s.GPUMilli, WholeGPU, " thousandths"},
		{"mem", s.MemMiB, MaxMemMiB, " MiB"},
		{"cpus", s.CPUMilli, 4096 * 1000, " thousandths"},
		{"time", int64(s.TimeLimit / time.Second), MaxTimeDays * 86400, " seconds"},
		{"expect", int64(s.Duration / time.Second), MaxTimeDays * 86400, " seconds"},
		{"features", int64(len(s.Features)), MaxFeatures, " bytes"},
	} {
		if v.got < 0 || v.got > v.max {
			return Errorf(CodeInvalid, "%s: %d%s is outside 0 to %d", v.field, v.got, v.unit, v.max)
		}
	}
	if s.TimeLimit != 0 && s.TimeLimit < time.Second {
		return Errorf(CodeInvalid, "time: %s is below the least limit of 1 s", s.TimeLimit)
	}
	return nil
}

func (s *Spec) checkConflicts() error {
	switch {
	case s.GPUs == 0 && s.Exclusive:
		return Errorf(CodeInvalid, "exclusive and gpus: a job without GPUs cannot have one alone; add --gpus or drop --exclusive")
	case s.GPUs == 0 && s.GPUMemMiB > 0:
		return Errorf(CodeInvalid, "gpu_mem and gpus: a job without GPUs needs no GPU memory; add --gpus or drop --gpu-mem")
	case s.GPUs == 0 && s.GPUMilli > 0:
		return Errorf(CodeInvalid, "gpu_util and gpus: a job without GPUs uses none of one; add --gpus or drop --gpu-util")
	case s.GPUs == 0 && s.GPUType != "":
		return Errorf(CodeInvalid, "gpu_type and gpus: a job without GPUs has no GPU type; add --gpus or drop --gpu-type")
	case s.Node != "":
		return CheckName("node", string(s.Node))
	}
	return nil
}
