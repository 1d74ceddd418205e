//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Provider is the gpu.Provider of NVIDIA GPUs. It owns the loaded library.
type Provider struct {
	tuner
	cutter
	cfg    Config
	nv     lib.Interface
	driver string
	cuda   string

	symbols sync.Map // name to whether the library has it

	mu     sync.Mutex
	closed bool
	// share is what the driver's samples say about the processes of each GPU.
	share map[string]*share
}

var (
	_ gpu.Provider     = (*Provider)(nil)
	_ gpu.HealthReader = (*Provider)(nil)
)

// required are the calls without which nothing can be reported. Calling a symbol that the
// driver's library lacks would end the process, so the others are looked up before use.
var required = []string{
	"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
	"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo",
}

// optional are the calls whose absence costs more than a detail.
var optional = []string{
	"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetProcessUtilization",
	"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}

// New loads the library and initializes it. Errors wrap gpu.ErrNoDriver when
// the node has no working driver.
func New(cfg Config) (*Provider, error) {
	path := cmp.Or(cfg.LibraryPath, defaultLibrary)
	nv := lib.New(lib.WithLibraryPath(path))
	switch ret := nv.Init(); ret {
	case lib.SUCCESS:
	case lib.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: %s not found; install the driver or configure gpus: none", gpu.ErrNoDriver, path)
	case lib.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: the kernel module is not loaded; run nvidia-modprobe or configure gpus: none", gpu.ErrNoDriver)
	default:
		return nil, fmt.Errorf("%w: nvmlInit: %s (code %d); see whether nvidia-smi works", gpu.ErrNoDriver, text(ret), ret)
	}
	p := &Provider{cfg: cfg, nv: nv, share: map[string]*share{}}
	p.tuner, p.cutter = tuner{p}, cutter{p}
	for _, sym := range required {
		if !p.has(sym) {
			nv.Shutdown()
			return nil, fmt.Errorf("%w: %s has no %s; update the driver", gpu.ErrNoDriver, path, sym)
		}
	}
	if p.has("nvmlSystemGetDriverVersion") {
		p.driver, _ = nv.SystemGetDriverVersion() // "" when unknown
	}
	if p.has("nvmlSystemGetCudaDriverVersion") {
		p.cuda = p.cudaVersion()
	}
	if cfg.Log != nil {
		lacks := slices.DeleteFunc(slices.Clone(optional), p.has)
		cfg.Log.Info("driver loaded", "component", "nvml", "driver", p.driver, "lacks", lacks)
	}
	return p, nil
}

// Versions returns the versions of the driver and of the newest CUDA that it supports, ""
// when unknown.
func (p *Provider) Versions() (driver, cuda string) { return p.driver, p.cuda }

// Close unloads the library. Later calls return an error.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return check("nvmlShutdown", p.nv.Shutdown())
}

// Admit implements gpu.Provider. It changes nothing on the GPU: the grant is enforced by
// the scheduler's ledger, by device rules and by watching Usage.
func (p *Provider) Admit(ctx context.Context, g gpu.Grant) ([]string, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if len(g.Cards) > 0 {
		// A GPU that cannot be read must not keep others from being used.
		cards, err := p.Inventory(ctx)
		for _, gc := range g.Cards {
			if !slices.ContainsFunc(cards, func(c gpu.Card) bool {
				return c.UUID == gc.UUID || slices.ContainsFunc(c.Instances, func(i gpu.Instance) bool { return i.UUID == gc.UUID })
			}) {
				return nil, errors.Join(fmt.Errorf("%w: %s asks for %s, which the driver does not show", gpu.ErrUnknownCard, g.Attempt, gc.UUID), err)
			}
		}
	}
	return gpu.Env(g), nil
}

// Retire implements gpu.Provider; there is nothing to undo.
func (p *Provider) Retire(context.Context, string) error { return nil }

// each calls f with every GPU that the driver lists and joins the errors.
func (p *Provider) each(ctx context.Context, f func(int, lib.Device) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("nvml: provider is closed")
	}
	n, ret := p.nv.DeviceGetCount()
	if err := check("nvmlDeviceGetCount", ret); err != nil {
		return err
	}
	var errs []error
	for i := range n {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		d, ret := p.nv.DeviceGetHandleByIndex(i)
		if ret != lib.SUCCESS {
			errs = append(errs, &gpu.CardError{Index: i, Err: check("nvmlDeviceGetHandleByIndex", ret)})
			continue
		}
		if err := f(i, d); err != nil {
			uuid, ret := d.GetUUID()
			if ret != lib.SUCCESS {
				uuid = ""
			}
			errs = append(errs, &gpu.CardError{Index: i, UUID: uuid, Err: err})
		}
	}
	return errors.Join(errs...)
}

// has reports whether the library has a call; calling a missing one would end the process.
func (p *Provider) has(symbol string) bool {
	if known, ok := p.symbols.Load(symbol); ok {
		return known.(bool)
	}
	found := p.nv.Extensions().LookupSymbol(symbol) == nil
	p.symbols.Store(symbol, found)
	return found
}

func (p *Provider) hasAny(symbols ...string) bool { return slices.ContainsFunc(symbols, p.has) }

// check turns a return code into an error that names the call.
func check(call string, ret lib.Return) error {
	switch ret {
	case lib.SUCCESS:
		return nil
	case lib.ERROR_GPU_IS_LOST:
		return fmt.Errorf("%s: %w", call, gpu.ErrLost)
	}
	return fmt.Errorf("%s: %s (code %d)", call, text(ret), ret)
}

// text describes a return code. It does not use the library's own text: that call, too, may
// be missing.
func text(ret lib.Return) string {
	switch ret {
	case lib.ERROR_NOT_SUPPORTED:
		return "not supported"
	case lib.ERROR_NO_PERMISSION:
		return "no permission"
	case lib.ERROR_NOT_FOUND:
		return "not found"
	case lib.ERROR_TIMEOUT:
		return "timeout"
	case lib.ERROR_RESET_REQUIRED:
		return "the GPU needs a reset"
	case lib.ERROR_LIB_RM_VERSION_MISMATCH:
		return "driver and library have different versions; reboot after an update"
	case lib.ERROR_UNKNOWN:
		return "unknown error"
	}
	return "NVML error"
}

func unsupported(ret lib.Return) bool {
	return ret == lib.ERROR_NOT_SUPPORTED || ret == lib.ERROR_FUNCTION_NOT_FOUND ||
		ret == lib.ERROR_ARGUMENT_VERSION_MISMATCH || ret == lib.ERROR_DEPRECATED
}

func cString[T ~int8 | ~uint8](b []T) string {
	var s []byte
	for _, c := range b {
		if c == 0 {
			break
		}
		s = append(s, byte(c))
	}
	return string(s)
}

func mib(n uint64) int64 { return int64(n >> 20) }
