package tracer

import "strings"

// Kind says why a program could not be traced.
type Kind string

// The kinds. The first ones come from the Python side.
const (
	KindNoTorch Kind = "no-torch" // Python has no working PyTorch
	KindNoStep  Kind = "no-step"  // the program ended before its first step was done
	KindCrash   Kind = "crash"    // it raised an exception
	KindMemory  Kind = "memory"   // it needs more memory than it may have
	KindFactory Kind = "factory"  // the named function cannot be loaded
	KindTracer  Kind = "tracer"   // the tracer itself did not understand it

	KindPython  Kind = "python"  // Python cannot be started
	KindTimeout Kind = "timeout" // no step was done in time
	KindExit    Kind = "exit"    // the process ended without an answer
	KindGarbage Kind = "garbage" // the answer is not valid
)

func kinds() []Kind {
	return []Kind{KindNoTorch, KindNoStep, KindCrash, KindMemory, KindFactory, KindTracer}
}

// ProgramError says why a program gave no features, and what to do.
type ProgramError struct {
	Kind   Kind
	Detail string
	// Output is the end of what the program wrote to standard error, or to
	// standard output if that is all there is.
	Output string
}

// Error implements error.
func (e *ProgramError) Error() string {
	s := e.Detail
	if hint := e.hint(); hint != "" {
		s += "; " + hint
	}
	if out := strings.TrimSpace(e.Output); out != "" {
		s += "\nits last words were:\n" + out
	}
	return s
}

func (e *ProgramError) hint() string {
	switch e.Kind {
	case KindNoTorch, KindPython:
		return "activate the program's environment, or name its interpreter with --python"
	case KindNoStep:
		return "name a function that returns the model and its inputs with --factory"
	case KindMemory:
		return "raise --memory, lower the batch size, or use --factory, which needs no memory for values"
	case KindTimeout:
		return "raise --timeout, lower the batch size, or use --factory, which computes nothing"
	case KindGarbage:
		return "something in the program writes to file descriptors that are not its own"
	default:
		return ""
	}
}
