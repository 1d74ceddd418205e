/* A libnvidia-ml.so.1 that says what a script tells it to. The script is the
 * file named by FAKE_NVML_SCRIPT, or else the one called "script" beside the
 * library, read again at nvmlInit_v2 and at each
 * nvmlDeviceGetCount_v2, so that a test can change the world between calls;
 * nvmlEventSetWait_v2 reads it all the time. One directive a line:
 *
 *   init CODE                       what nvmlInit_v2 returns
 *   driver VERSION
 *   cuda NUMBER                     13000 is 13.0
 *   card UUID TOTAL RESERVED USED UTIL% MILLIWATT PCI NAME...   (bytes)
 *   proc INDEX PID BYTES            a compute process; -1 bytes: not available
 *   gfx INDEX PID BYTES             a graphics process
 *   mps INDEX PID BYTES             a client of an MPS server
 *   sample INDEX PID MICROSECONDS UTIL%   (time 0: a stale entry, always given)
 *   energy INDEX MILLIJOULES
 *   persistence INDEX 0|1
 *   link INDEX LINK gpu|switch|down PCI
 *   mig INDEX UUID TOTAL SMS GPUSLICES COMPUTESLICES GI CI PROFILE   (bytes)
 *   migproc UUID PID BYTES          a compute process of an instance
 *   cut INDEX                       the card is in MIG mode, and its instances can be
 *                                   replaced: profiles 1g.10gb, 3g.40gb, 7g.80gb; an
 *                                   instance begins at slice GI; what is destroyed and
 *                                   made is appended to SCRIPT.cuts, a line each
 *   rows INDEX PENDING FAILED
 *   retired INDEX PENDING
 *   event UUID TYPE DATA            given once, in the order of the script
 *   (power limits and clocks that are set are kept in files SCRIPT.power.UUID, as
 *   "MILLIWATT MHZ", and outlive the process, as in a card)
 *   bare                            every call that may be missing is not supported
 *   fail INDEX CALL CODE            CALL on that card returns CODE; -1: any card
 *   hang CALL                       CALL never returns, for any card; a file
 *                                   SCRIPT.hung.PID says that it was called
 *   slow CALL MILLISECONDS
 *   crash CALL                      CALL ends the process
 *
 * Built with -DOLD it lacks what old drivers lack.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
enum { MAX = 64, LINKS = 18, MIGS = 8 };

typedef unsigned long long u64;

struct proc { int card; unsigned pid; u64 bytes; };
struct sample { int card; unsigned pid; u64 at; unsigned util; };
struct rule { int card; char call[64]; int code; };
struct mig {
	char uuid[96], profile[32];
	u64 total;
	unsigned sms, gslices, cslices, gi, ci;
};
struct card {
	char uuid[96], pci[32], name[96];
	u64 total, reserved, used;
	unsigned util, mw;
	long long energy;
	int persistence, nmig, cut;
	int rows[2], retired;
	char link[LINKS][8], remote[LINKS][32];
	struct mig mig[MIGS];
};
struct migproc { char uuid[96]; unsigned pid; u64 bytes; };

static struct state {
	int init, cuda, bare, ncard, nproc, ngfx, nmps, nmigproc, nsample, nfail, nhang, nslow, ncrash;
	char driver[80];
	struct card card[MAX];
	struct proc proc[MAX], gfx[MAX], mps[MAX];
	struct migproc migproc[MAX];
	struct sample sample[MAX];
	struct rule fail[MAX], hang[MAX], slow[MAX], crash[MAX];
} s;

static FILE *script_file(void) {
	const char *path = getenv("FAKE_NVML_SCRIPT"), *slash;
	char beside[4096];
	Dl_info us;
	if (!path && dladdr(&s, &us) && (slash = strrchr(us.dli_fname, '/'))) {
		snprintf(beside, sizeof beside, "%.*s/script", (int)(slash - us.dli_fname), us.dli_fname);
		path = beside;
	}
	return path ? fopen(path, "r") : NULL;
}

/* hang says that the driver hangs, and does. */
static void hang(void) {
	const char *path = getenv("FAKE_NVML_SCRIPT");
	char said[4096];
	FILE *f = NULL;
	if (path) {
		snprintf(said, sizeof said, "%s.hung.%d", path, (int)getpid());
		f = fopen(said, "w");
	}
	if (f) {
		fclose(f);
	}
	for (;;) {
		pause();
	}
}

static int read_proc(const char *line, const char *word, struct proc *to, int *n) {
	struct proc p = {0};
	char w[16];
	long long bytes;
	if (sscanf(line, "%15s %d %u %lld", w, &p.card, &p.pid, &bytes) != 4 || strcmp(w, word) != 0 || *n >= MAX) {
		return 0;
	}
	p.bytes = (u64)bytes;
	to[(*n)++] = p;
	return 1;
}

static int read_rule(const char *line, const char *format, struct rule *to, int *n) {
	struct rule r = {-1, "", 0};
	if (*n >= MAX || sscanf(line, format, r.call, &r.code) < 1) {
		return 0;
	}
	to[(*n)++] = r;
	return 1;
}

/* read_card reads what belongs to a card that is there already. */
static int read_card(const char *line) {
	int i = -1, link = -1;
	char w[16], kind[8], pci[32];
	struct mig m = {0};
	if (sscanf(line, "%15s %d", w, &i) != 2 || i < 0 || i >= s.ncard) {
		return 0;
	}
	struct card *c = &s.card[i];
	if (strcmp(w, "cut") == 0) {
		c->cut = 1;
		return 1;
	}
	if (sscanf(line, "link %*d %d %7s %31s", &link, kind, pci) == 3 && link >= 0 && link < LINKS) {
		strcpy(c->link[link], kind);
		strcpy(c->remote[link], pci);
		return 1;
	}
	if (sscanf(line, "mig %*d %95s %llu %u %u %u %u %u %31s", m.uuid, &m.total, &m.sms, &m.gslices, &m.cslices, &m.gi,
		   &m.ci, m.profile) == 8 && c->nmig < MIGS) {
		c->mig[c->nmig++] = m;
		return 1;
	}
	if (sscanf(line, "energy %*d %lld", &c->energy) == 1 || sscanf(line, "persistence %*d %d", &c->persistence) == 1) {
		return 1;
	}
	return sscanf(line, "rows %*d %d %d", &c->rows[0], &c->rows[1]) == 2 || sscanf(line, "retired %*d %d", &c->retired) == 1;
}

static void load(void) {
	FILE *f = script_file();
	char line[512], word[16];
	memset(&s, 0, sizeof s);
	if (!f) {
		return;
	}
	while (fgets(line, sizeof line, f)) {
		struct card c = {.energy = -1, .persistence = -1, .rows = {-1}, .retired = -1};
		struct sample m = {0};
		struct rule e = {0};
		struct migproc mp = {0};
		word[0] = 0;
		sscanf(line, "%15s", word);
		if (sscanf(line, "init %d", &s.init) == 1 || sscanf(line, "driver %79s", s.driver) == 1 ||
		    sscanf(line, "cuda %d", &s.cuda) == 1 || strcmp(word, "event") == 0) {
			continue;
		}
		if (strcmp(word, "bare") == 0) {
			s.bare = 1;
		} else if (sscanf(line, "card %95s %llu %llu %llu %u %u %31s %95[^\n]", c.uuid, &c.total, &c.reserved,
			   &c.used, &c.util, &c.mw, c.pci, c.name) == 8 && s.ncard < MAX) {
			s.card[s.ncard++] = c;
		} else if (sscanf(line, "migproc %95s %u %llu", mp.uuid, &mp.pid, &mp.bytes) == 3 && s.nmigproc < MAX) {
			s.migproc[s.nmigproc++] = mp;
		} else if (sscanf(line, "sample %d %u %llu %u", &m.card, &m.pid, &m.at, &m.util) == 4 && s.nsample < MAX) {
			s.sample[s.nsample++] = m;
		} else if (sscanf(line, "fail %d %63s %d", &e.card, e.call, &e.code) == 3 && s.nfail < MAX) {
			s.fail[s.nfail++] = e;
		} else if (!read_proc(line, "proc", s.proc, &s.nproc) && !read_proc(line, "gfx", s.gfx, &s.ngfx) &&
			   !read_proc(line, "mps", s.mps, &s.nmps) && !read_rule(line, "hang %63s", s.hang, &s.nhang) &&
			   !read_rule(line, "slow %63s %d", s.slow, &s.nslow) &&
			   !read_rule(line, "crash %63s", s.crash, &s.ncrash) && !read_card(line)) {
			fprintf(stderr, "fakenvml: bad line: %s", line);
			abort();
		}
	}
	fclose(f);
}

/* required are the calls that "bare" leaves. */
static const char *const required[] = {
	"nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
	"nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo", NULL,
};

static int find(const struct rule *in, int n, const char *call) {
	for (int i = 0; i < n; i++) {
		if (strcmp(in[i].call, call) == 0) {
			return i;
		}
	}
	return -1;
}

/* script answers for a call on a card as the script wants it, if it does. */
static int script(int card, const char *call) {
	int k;
	if (find(s.crash, s.ncrash, call) >= 0) {
		abort();
	}
	if (find(s.hang, s.nhang, call) >= 0) {
		hang();
	}
	if ((k = find(s.slow, s.nslow, call)) >= 0) {
		usleep((useconds_t)s.slow[k].code * 1000);
	}
	for (int i = 0; i < s.nfail; i++) {
		if ((s.fail[i].card == card || s.fail[i].card == -1) && strcmp(s.fail[i].call, call) == 0) {
			return s.fail[i].code;
		}
	}
	if (s.bare) {
		for (int i = 0; required[i]; i++) {
			if (strcmp(required[i], call) == 0) {
				return OK;
			}
		}
		return NOT_SUPPORTED;
	}
	return OK;
}

static struct mig *mig_of(void *dev) {
	for (int i = 0; i < s.ncard; i++) {
		for (int k = 0; k < s.card[i].nmig; k++) {
			if (dev == &s.card[i].mig[k]) {
				return dev;
			}
		}
	}
	return NULL;
}

#define BEGIN(dev)                                          \
	int i = (int)((struct card *)(dev) - s.card);       \
	if (i < 0 || i >= s.ncard) return INVALID;          \
	int code = script(i, __func__);                     \
	if (code != OK) return code;                        \
	struct card *c = &s.card[i];                        \
	(void)c

static int put(char *to, unsigned room, const char *from) {
	if (strlen(from) + 1 > room) {
		return TOO_SMALL;
	}
	strcpy(to, from);
	return OK;
}

int nvmlInit_v2(void) {
	load();
	int code = script(-1, __func__);
	return code != OK ? code : s.init;
}

int nvmlShutdown(void) { return OK; }

int nvmlSystemGetDriverVersion(char *to, unsigned room) {
	int code = script(-1, __func__);
	return code != OK ? code : put(to, room, s.driver);
}

int nvmlDeviceGetCount_v2(unsigned *n) {
	load();
	*n = (unsigned)s.ncard;
	return script(-1, __func__);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **dev) {
	if (index >= (unsigned)s.ncard) {
		return INVALID;
	}
	*dev = &s.card[index];
	return script((int)index, __func__);
}

int nvmlDeviceGetUUID(void *dev, char *to, unsigned room) {
	if (mig_of(dev)) {
		return put(to, room, mig_of(dev)->uuid);
	}
	BEGIN(dev);
	return put(to, room, c->uuid);
}

int nvmlDeviceGetName(void *dev, char *to, unsigned room) {
	if (mig_of(dev)) {
		char name[160];
		snprintf(name, sizeof name, "NVIDIA Fake MIG %s", mig_of(dev)->profile);
		return strcmp(mig_of(dev)->profile, "-") == 0 ? NOT_SUPPORTED : put(to, room, name);
	}
	BEGIN(dev);
	return put(to, room, c->name);
}

struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(void *dev, struct memory *m) {
	BEGIN(dev);
	m->total = c->total;
	m->used = c->used + c->reserved; /* as the first version of the call does */
	m->free = c->total - m->used;
	return OK;
}

struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *dev, struct utilization *u) {
	BEGIN(dev);
	u->gpu = c->util;
	u->memory = c->util / 2;
	return OK;
}

struct info1 { unsigned pid; u64 used; };
struct info3 { unsigned pid; u64 used; unsigned gi, ci; };

/* list writes the processes of a card; stride is the size of their struct. */
static int list(struct proc *from, int n, int card, unsigned *count, char *to, size_t stride) {
	unsigned have = 0;
	for (int k = 0; k < n; k++) {
		if (from[k].card != card) {
			continue;
		}
		if (have < *count) {
			memset(to + have * stride, 0xff, stride); /* no instances */
			struct info1 *out = (struct info1 *)(to + have * stride);
			out->pid = from[k].pid;
			out->used = from[k].bytes;
		}
		have++;
	}
	int code = have > *count ? TOO_SMALL : OK;
	*count = have;
	return code;
}

int nvmlDeviceGetComputeRunningProcesses(void *dev, unsigned *n, struct info1 *to) {
	BEGIN(dev);
	return list(s.proc, s.nproc, i, n, (char *)to, sizeof *to);
}

#ifndef OLD
static int list_mig(struct mig *m, unsigned *n, struct info3 *to) {
	unsigned have = 0, room = *n;
	for (int k = 0; k < s.nmigproc; k++) {
		if (strcmp(s.migproc[k].uuid, m->uuid) == 0) {
			if (have < room) {
				struct info3 in = {s.migproc[k].pid, s.migproc[k].bytes, m->gi, m->ci};
				to[have] = in;
			}
			have++;
		}
	}
	*n = have;
	return have > room ? TOO_SMALL : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *dev, unsigned *n, struct info3 *to) {
	if (mig_of(dev)) {
		return list_mig(mig_of(dev), n, to);
	}
	BEGIN(dev);
	return list(s.proc, s.nproc, i, n, (char *)to, sizeof *to);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *dev, unsigned *n, struct info3 *to) {
	if (mig_of(dev)) {
		return NOT_SUPPORTED;
	}
	BEGIN(dev);
	return list(s.mps, s.nmps, i, n, (char *)to, sizeof *to);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *dev, unsigned *n, struct info3 *to) {
	if (mig_of(dev)) {
		return NOT_SUPPORTED;
	}
	BEGIN(dev);
	return list(s.gfx, s.ngfx, i, n, (char *)to, sizeof *to);
}

struct memory2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *dev, struct memory2 *m) {
	if (m->version != (sizeof *m | 2u << 24)) {
		return 25; /* argument version mismatch */
	}
	if (mig_of(dev)) {
		m->total = mig_of(dev)->total;
		m->reserved = 1 << 20;
		m->used = 0;
		for (int k = 0; k < s.nmigproc; k++) {
			if (strcmp(s.migproc[k].uuid, mig_of(dev)->uuid) == 0) {
				m->used += s.migproc[k].bytes;
			}
		}
		m->free = m->total - m->used - m->reserved;
		return OK;
	}
	BEGIN(dev);
	m->total = c->total;
	m->reserved = c->reserved;
	m->used = c->used;
	m->free = c->total - c->used - c->reserved;
	return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *dev, struct pci *p) {
	BEGIN(dev);
	memset(p, 0, sizeof *p);
	return put(p->bus_id, sizeof p->bus_id, c->pci);
}

int nvmlDeviceGetCudaComputeCapability(void *dev, int *major, int *minor) {
	BEGIN(dev);
	*major = 8;
	*minor = 6;
	return OK;
}

struct power { unsigned limit, clock; };

/* power reads what a card was set to, or keeps it. */
static struct power power(const struct card *c, const struct power *set) {
	struct power p = {350000, 0};
	char path[4096];
	snprintf(path, sizeof path, "%s.power.%s", getenv("FAKE_NVML_SCRIPT"), c->uuid);
	FILE *f = fopen(path, set ? "w" : "r");
	if (f && set) {
		fprintf(f, "%u %u", set->limit, set->clock);
	} else if (f && fscanf(f, "%u %u", &p.limit, &p.clock) != 2) {
		abort();
	}
	if (f) {
		fclose(f);
	}
	return p;
}

int nvmlDeviceGetEnforcedPowerLimit(void *dev, unsigned *mw) { BEGIN(dev); *mw = power(c, NULL).limit; return OK; }
int nvmlDeviceGetPowerManagementLimit(void *dev, unsigned *mw) { BEGIN(dev); *mw = power(c, NULL).limit; return OK; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *dev, unsigned *mw) { BEGIN(dev); *mw = 350000; return OK; }

int nvmlDeviceGetPowerManagementLimitConstraints(void *dev, unsigned *least, unsigned *most) {
	BEGIN(dev);
	*least = 100000;
	*most = 366000;
	return OK;
}

int nvmlDeviceSetPowerManagementLimit(void *dev, unsigned mw) {
	BEGIN(dev);
	struct power p = power(c, NULL);
	if (mw < 100000 || mw > 366000) {
		return INVALID;
	}
	p.limit = mw;
	power(c, &p);
	return OK;
}

int nvmlDeviceSetGpuLockedClocks(void *dev, unsigned least, unsigned most) {
	BEGIN(dev);
	struct power p = power(c, NULL);
	if (least > most) {
		return INVALID;
	}
	p.clock = most;
	power(c, &p);
	return OK;
}

int nvmlDeviceResetGpuLockedClocks(void *dev) {
	BEGIN(dev);
	struct power p = power(c, NULL);
	p.clock = 0;
	power(c, &p);
	return OK;
}

static int clocks(const unsigned *from, unsigned have, unsigned *n, unsigned *to) {
	unsigned room = *n;
	*n = have;
	if (have > room) {
		return TOO_SMALL;
	}
	memcpy(to, from, have * sizeof *to);
	return OK;
}

int nvmlDeviceGetSupportedMemoryClocks(void *dev, unsigned *n, unsigned *to) {
	static const unsigned mem[] = {405, 9501};
	BEGIN(dev);
	return clocks(mem, 2, n, to);
}

int nvmlDeviceGetSupportedGraphicsClocks(void *dev, unsigned mem, unsigned *n, unsigned *to) {
	static const unsigned slow[] = {420}, fast[] = {2100, 1800, 1200, 600};
	BEGIN(dev);
	return mem == 9501 ? clocks(fast, 4, n, to) : clocks(slow, 1, n, to);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **dev) {
	for (int i = 0; i < s.ncard; i++) {
		if (strcmp(s.card[i].uuid, uuid) == 0) {
			*dev = &s.card[i];
			return script(i, __func__);
		}
	}
	return NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(void *dev, unsigned *mw) { BEGIN(dev); *mw = c->mw; return OK; }

struct putil { unsigned pid; u64 at; unsigned sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *dev, struct putil *to, unsigned *n, u64 since) {
	BEGIN(dev);
	unsigned have = 0;
	for (int k = 0; k < s.nsample; k++) {
		if (s.sample[k].card != i || (s.sample[k].at != 0 && s.sample[k].at <= since)) {
			continue;
		}
		if (to && have < *n) {
			struct putil u = {s.sample[k].pid, s.sample[k].at, s.sample[k].util, 0, 0, 0};
			to[have] = u;
		}
		have++;
	}
	int small = !to || have > *n;
	*n = have;
	return have == 0 ? NOT_FOUND : small ? TOO_SMALL : OK;
}

int nvmlSystemGetCudaDriverVersion(int *v) { *v = s.cuda; return script(-1, __func__); }

int nvmlDeviceGetTotalEnergyConsumption(void *dev, u64 *mj) {
	BEGIN(dev);
	*mj = (u64)c->energy;
	return c->energy < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetPersistenceMode(void *dev, int *on) {
	BEGIN(dev);
	*on = c->persistence;
	return c->persistence < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetNvLinkState(void *dev, unsigned link, int *on) {
	BEGIN(dev);
	if (link >= LINKS || !c->link[link][0]) {
		return link < LINKS && strcmp(c->link[0], "") ? INVALID : NOT_SUPPORTED;
	}
	*on = strcmp(c->link[link], "down") != 0;
	return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *dev, unsigned link, int *kind) {
	BEGIN(dev);
	*kind = strcmp(c->link[link], "switch") == 0 ? 2 : 0;
	return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *dev, unsigned link, struct pci *p) {
	BEGIN(dev);
	memset(p, 0, sizeof *p);
	return put(p->bus_id, sizeof p->bus_id, c->remote[link]);
}

int nvmlDeviceGetMigMode(void *dev, unsigned *now, unsigned *pending) {
	BEGIN(dev);
	*now = *pending = c->nmig > 0 || c->cut;
	return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *dev, unsigned *n) { BEGIN(dev); *n = MIGS; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *dev, unsigned k, void **out) {
	BEGIN(dev);
	/* The first place is empty, as after an instance was destroyed. */
	if (k == 0 || k > (unsigned)c->nmig) {
		return NOT_FOUND;
	}
	*out = &c->mig[k - 1];
	return OK;
}

int nvmlDeviceGetGpuInstanceId(void *dev, unsigned *id) { *id = mig_of(dev)->gi; return script(-1, __func__); }
int nvmlDeviceGetComputeInstanceId(void *dev, unsigned *id) { *id = mig_of(dev)->ci; return script(-1, __func__); }

struct place { unsigned start, size; };
struct giprofile { unsigned id, p2p, slices, count, sms, copy, dec, enc, jpeg, ofa; u64 mb; };
struct ciprofile { unsigned id, slices, count, sms, copy, dec, enc, jpeg, ofa; };
struct giinfo { void *dev; unsigned id, profile; struct place at; };
struct made { unsigned id, slices; struct place at; };

static const struct { unsigned slices, mb, size, n, start[7]; } sizes[] = {
	[0] = {1, 9728, 1, 7, {0, 1, 2, 3, 4, 5, 6}}, [2] = {3, 40192, 4, 2, {4, 0}}, [4] = {7, 81152, 8, 1, {0}},
};
static struct made made[MAX];
static int nmade;

static void did(const char *what, unsigned a, unsigned b) {
	char path[4096];
	snprintf(path, sizeof path, "%s.cuts", getenv("FAKE_NVML_SCRIPT"));
	FILE *f = fopen(path, "a");
	if (f) {
		fprintf(f, "%s %u %u\n", what, a, b);
		fclose(f);
	}
}

int nvmlDeviceGetGpuInstanceProfileInfo(void *dev, unsigned k, struct giprofile *p) {
	BEGIN(dev);
	if (!c->cut || k >= sizeof sizes / sizeof *sizes || !sizes[k].slices) {
		return NOT_SUPPORTED;
	}
	*p = (struct giprofile){.id = 100 + k, .slices = sizes[k].slices, .count = sizes[k].n, .mb = sizes[k].mb};
	return OK;
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *dev, unsigned id, struct place *to, unsigned *n) {
	BEGIN(dev);
	*n = sizes[id - 100].n;
	for (unsigned k = 0; to && k < *n; k++) {
		to[k] = (struct place){sizes[id - 100].start[k], sizes[id - 100].size};
	}
	return OK;
}

int nvmlDeviceGetGpuInstanceById(void *dev, unsigned id, void **gi) {
	BEGIN(dev);
	if (!c->cut) {
		return NOT_SUPPORTED;
	}
	made[nmade] = (struct made){.id = id, .at = {id, 1}};
	for (int k = 0; k < c->nmig; k++) {
		if (c->mig[k].gi == id && c->mig[k].gslices > 1) {
			made[nmade].at.size = c->mig[k].gslices == 7 ? 8 : 4;
		}
	}
	*gi = &made[nmade];
	nmade = (nmade + 1) % MAX;
	return OK;
}

int nvmlGpuInstanceGetInfo(struct made *gi, struct giinfo *to) {
	*to = (struct giinfo){.id = gi->id, .at = gi->at};
	return OK;
}

int nvmlGpuInstanceGetComputeInstanceById(struct made *gi, unsigned id, void **ci) { (void)id; *ci = gi; return OK; }
int nvmlComputeInstanceDestroy(struct made *ci) { did("destroy-compute", ci->id, 0); return script(-1, __func__); }
int nvmlGpuInstanceDestroy(struct made *gi) { did("destroy", gi->id, 0); return OK; }

int nvmlDeviceCreateGpuInstanceWithPlacement(void *dev, unsigned id, const struct place *at, void **gi) {
	BEGIN(dev);
	did("create", sizes[id - 100].slices, at->start);
	made[nmade] = (struct made){.id = at->start, .slices = sizes[id - 100].slices, .at = *at};
	*gi = &made[nmade];
	nmade = (nmade + 1) % MAX;
	return OK;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(struct made *gi, unsigned k, unsigned engines, struct ciprofile *to) {
	(void)gi, (void)engines;
	if (k >= sizeof sizes / sizeof *sizes || !sizes[k].slices) {
		return NOT_SUPPORTED;
	}
	*to = (struct ciprofile){.id = k, .slices = sizes[k].slices};
	return OK;
}

int nvmlGpuInstanceCreateComputeInstance(struct made *gi, unsigned id, void **ci) {
	did("create-compute", sizes[id].slices, gi->id);
	*ci = gi;
	return script(-1, __func__);
}

struct attributes { unsigned sms, copy, dec, enc, jpeg, ofa, gslices, cslices; u64 mb; };
int nvmlDeviceGetAttributes_v2(void *dev, struct attributes *a) {
	struct mig *m = mig_of(dev);
	if (!m) {
		return NOT_SUPPORTED;
	}
	memset(a, 0, sizeof *a);
	a->sms = m->sms;
	a->gslices = m->gslices;
	a->cslices = m->cslices;
	a->mb = m->total >> 20;
	return script(-1, __func__);
}

int nvmlDeviceGetRemappedRows(void *dev, unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failed) {
	BEGIN(dev);
	*corr = *unc = 0;
	*pending = (unsigned)c->rows[0];
	*failed = (unsigned)c->rows[1];
	return c->rows[0] < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *dev, int *on) {
	BEGIN(dev);
	*on = c->retired;
	return c->retired < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetTemperature(void *dev, int sensor, unsigned *t) { BEGIN(dev); *t = 40 + (unsigned)sensor; return OK; }

/* Events name a card by UUID, since a handle must mean the same card for ever. */
static struct { void *dev; char uuid[96]; } listener[MAX];
static int nlistener, delivered;

int nvmlDeviceGetSupportedEventTypes(void *dev, u64 *types) { BEGIN(dev); *types = 2 | 8; return OK; }
int nvmlEventSetCreate(void **set) { nlistener = 0; *set = &nlistener; return script(-1, __func__); }
int nvmlEventSetFree(void *set) { (void)set; return OK; }

int nvmlDeviceRegisterEvents(void *dev, u64 types, void *set) {
	BEGIN(dev);
	(void)set;
	if (types & ~(u64)(2 | 8) || nlistener >= MAX) {
		return INVALID;
	}
	listener[nlistener].dev = dev;
	strcpy(listener[nlistener++].uuid, c->uuid);
	return OK;
}

struct event { void *dev; u64 type, data; unsigned gi, ci; };
int nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms) {
	(void)set;
	struct stat was = {0}, is;
	for (unsigned waited = 0;; waited += 50, usleep(50000)) {
		FILE *f = script_file();
		char line[512], uuid[96], call[64];
		if (waited >= ms) {
			if (f) {
				fclose(f);
			}
			return TIMEOUT;
		}
		if (f && fstat(fileno(f), &is) == 0 && is.st_ino == was.st_ino && is.st_mtime == was.st_mtime) {
			fclose(f); /* scripts are replaced, never changed */
			continue;
		}
		was = is;
		int n = 0, code = OK;
		while (f && fgets(line, sizeof line, f)) {
			if (sscanf(line, "hang %63s", call) == 1 && strcmp(call, __func__) == 0) {
				fclose(f);
				for (;;) {
					pause();
				}
			}
			if (sscanf(line, "fail %*d %63s %d", call, &code) == 2 && strcmp(call, __func__) == 0) {
				fclose(f);
				usleep(1000);
				return code;
			}
			memset(e, 0, sizeof *e);
			if (sscanf(line, "event %95s %llu %llu", uuid, &e->type, &e->data) == 3 && n++ == delivered) {
				fclose(f);
				delivered++;
				e->gi = e->ci = ~0u;
				for (int i = 0; i < nlistener; i++) {
					if (strcmp(listener[i].uuid, uuid) == 0) {
						e->dev = listener[i].dev;
					}
				}
				return OK;
			}
		}
		if (f) {
			fclose(f);
		}
	}
}
#endif
