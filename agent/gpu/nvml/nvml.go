//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/berth-scheduler/berth/agent/gpu"
)

// Provider is the gpu.Provider of NVIDIA cards. It owns the loaded library.
type Provider struct {
	cfg    Config
	nv     lib.Interface
	driver string

	mu     sync.Mutex
	closed bool
	// seen is the time of the newest utilization sample of each card, in
	// microseconds: the driver is asked only for what came after.
	seen map[string]uint64
}

var _ gpu.Provider = (*Provider)(nil)

// required are the calls without which nothing can be reported. A call into a
// symbol that the driver's library lacks would end the process, so the others
// are looked up before use.
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
	path := cfg.LibraryPath
	if path == "" {
		path = defaultLibrary
	}
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
	p := &Provider{cfg: cfg, nv: nv, seen: map[string]uint64{}}
	for _, sym := range required {
		if !p.has(sym) {
			nv.Shutdown()
			return nil, fmt.Errorf("%w: %s has no %s; update the driver", gpu.ErrNoDriver, path, sym)
		}
	}
	if p.has("nvmlSystemGetDriverVersion") {
		p.driver, _ = nv.SystemGetDriverVersion() // "" when unknown
	}
	if cfg.Log != nil {
		lacks := slices.DeleteFunc(slices.Clone(optional), p.has)
		cfg.Log.Info("driver loaded", "component", "nvml", "driver", p.driver, "lacks", lacks)
	}
	return p, nil
}

// Name implements gpu.Provider.
func (p *Provider) Name() string { return "nvml" }

// Close unloads the library. Later calls answer with an error.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return check("nvmlShutdown", p.nv.Shutdown())
}

// Inventory implements gpu.Provider.
func (p *Provider) Inventory(ctx context.Context) ([]gpu.Card, error) {
	var cards []gpu.Card
	err := p.each(ctx, func(i int, d lib.Device) error {
		c, err := p.card(i, d)
		if err == nil {
			cards = append(cards, c)
		}
		return err
	})
	return cards, err
}

// Usage implements gpu.Provider. A process whose memory the driver does not
// tell gets what the others leave, if it is the only one.
func (p *Provider) Usage(ctx context.Context) ([]gpu.Usage, error) {
	var out []gpu.Usage
	err := p.each(ctx, func(_ int, d lib.Device) error {
		u, err := p.usage(d)
		if err == nil {
			out = append(out, u)
		}
		return err
	})
	return out, err
}

// Admit implements gpu.Provider. It changes nothing on the card: the grant is
// kept by the scheduler's ledger, by device rules and by watching Usage.
func (p *Provider) Admit(ctx context.Context, g gpu.Grant) ([]string, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if len(g.Cards) > 0 {
		// A card that cannot be read must not keep another from being used.
		cards, err := p.Inventory(ctx)
		for _, gc := range g.Cards {
			if !slices.ContainsFunc(cards, func(c gpu.Card) bool { return c.UUID == gc.UUID }) {
				return nil, errors.Join(fmt.Errorf("%w: %s asks for %s, which the driver does not show", gpu.ErrUnknownCard, g.Attempt, gc.UUID), err)
			}
		}
	}
	return gpu.Env(g), nil
}

// Retire implements gpu.Provider; there is nothing to undo.
func (p *Provider) Retire(context.Context, string) error { return nil }

// each calls f with every card the driver shows and joins what went wrong.
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
		err := check("nvmlDeviceGetHandleByIndex", ret)
		if err == nil {
			err = f(i, d)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("GPU %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// card reads what does not change. UUID, name and memory must be there; the
// rest is left unknown where the driver does not tell.
func (p *Provider) card(i int, d lib.Device) (gpu.Card, error) {
	c := gpu.Card{Index: i, NUMA: gpu.Unknown, Driver: p.driver}
	var ret lib.Return
	if c.UUID, ret = d.GetUUID(); ret != lib.SUCCESS {
		return c, check("nvmlDeviceGetUUID", ret)
	}
	if c.Name, ret = d.GetName(); ret != lib.SUCCESS {
		return c, check("nvmlDeviceGetName", ret)
	}
	c.Type = gpu.NormalizeType(c.Name)
	mem, err := p.memory(d)
	if err != nil {
		return c, err
	}
	c.MemMiB, c.ReservedMiB = mib(mem.Total), mib(mem.Reserved)
	if p.hasAny("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo") {
		if pci, ret := d.GetPciInfo(); ret == lib.SUCCESS {
			c.PCI = cString(pci.BusId[:])
			if c.PCI == "" {
				c.PCI = cString(pci.BusIdLegacy[:])
			}
			c.NUMA = p.numa(c.PCI)
		}
	}
	if p.has("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.GetCudaComputeCapability(); ret == lib.SUCCESS {
			c.ComputeMajor, c.ComputeMinor = major, minor
		}
	}
	if p.has("nvmlDeviceGetEnforcedPowerLimit") {
		if mw, ret := d.GetEnforcedPowerLimit(); ret == lib.SUCCESS {
			c.PowerLimitW = int(mw / 1000)
		}
	}
	return c, nil
}

// memory prefers the second version of the call: only that one keeps the
// driver's reserve apart from what processes use.
func (p *Provider) memory(d lib.Device) (lib.Memory_v2, error) {
	if p.has("nvmlDeviceGetMemoryInfo_v2") {
		m, ret := d.GetMemoryInfo_v2()
		if ret == lib.SUCCESS {
			return m, nil
		}
		if !unsupported(ret) {
			return m, check("nvmlDeviceGetMemoryInfo_v2", ret)
		}
	}
	m, ret := d.GetMemoryInfo()
	return lib.Memory_v2{Total: m.Total, Free: m.Free, Used: m.Used}, check("nvmlDeviceGetMemoryInfo", ret)
}

// numa reads the host's NUMA node of a card from sysfs, where the address is
// written with a shorter domain and in lower case.
func (p *Provider) numa(pci string) int {
	domain, rest, ok := strings.Cut(pci, ":")
	if !ok || len(domain) < 4 {
		return gpu.Unknown
	}
	root := p.cfg.SysFS
	if root == "" {
		root = "/sys"
	}
	addr := strings.ToLower(domain[len(domain)-4:] + ":" + rest)
	b, err := os.ReadFile(filepath.Join(root, "bus/pci/devices", filepath.Base(addr), "numa_node"))
	if err != nil {
		return gpu.Unknown
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return gpu.Unknown
	}
	return n
}

func (p *Provider) has(symbol string) bool {
	return p.nv.Extensions().LookupSymbol(symbol) == nil
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

// text describes a code. The library's own text is not asked for: that call
// too may be missing.
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
