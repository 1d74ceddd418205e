/* A libnvidia-ml.so.1 that says what a script tells it to. The script is the
 * file named by FAKE_NVML_SCRIPT, read again at nvmlInit_v2 and at each
 * nvmlDeviceGetCount_v2, so that a test can change the world between calls.
 * One directive a line:
 *
 *   init CODE                       what nvmlInit_v2 returns
 *   driver VERSION
 *   card UUID TOTAL RESERVED USED UTIL% MILLIWATT PCI NAME...   (bytes)
 *   proc INDEX PID BYTES            a compute process; -1 bytes: not available
 *   mps INDEX PID BYTES             a client of an MPS server
 *   sample INDEX PID MICROSECONDS UTIL%   (time 0: a stale entry, always given)
 *   fail INDEX CALL CODE            CALL on that card returns CODE
 *   hang CALL                       CALL never returns, for any card
 *
 * Built with -DOLD it lacks what old drivers lack.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_FOUND = 6, TOO_SMALL = 7 };
enum { MAX = 64 };

struct proc { int card; unsigned pid; unsigned long long bytes; };
struct sample { int card; unsigned pid; unsigned long long at; unsigned util; };
struct fail { int card; char call[64]; int code; };
struct card {
	char uuid[96], pci[32], name[96];
	unsigned long long total, reserved, used;
	unsigned util, mw;
};

static struct {
	int init, ncard, nproc, nmps, nsample, nfail, nhang;
	char driver[80];
	struct card card[MAX];
	struct proc proc[MAX], mps[MAX];
	struct sample sample[MAX];
	struct fail fail[MAX], hang[MAX];
} s;

static void load(void) {
	const char *path = getenv("FAKE_NVML_SCRIPT");
	FILE *f = path ? fopen(path, "r") : NULL;
	char line[512];
	memset(&s, 0, sizeof s);
	if (!f) {
		return;
	}
	while (fgets(line, sizeof line, f)) {
		struct card c = {0};
		struct proc p = {0};
		struct sample m = {0};
		struct fail e = {0};
		long long bytes;
		if (sscanf(line, "init %d", &s.init) == 1 || sscanf(line, "driver %79s", s.driver) == 1) {
			continue;
		}
		if (sscanf(line, "card %95s %llu %llu %llu %u %u %31s %95[^\n]", c.uuid, &c.total, &c.reserved,
			   &c.used, &c.util, &c.mw, c.pci, c.name) == 8 && s.ncard < MAX) {
			s.card[s.ncard++] = c;
		} else if (sscanf(line, "proc %d %u %lld", &p.card, &p.pid, &bytes) == 3 && s.nproc < MAX) {
			p.bytes = (unsigned long long)bytes;
			s.proc[s.nproc++] = p;
		} else if (sscanf(line, "mps %d %u %lld", &p.card, &p.pid, &bytes) == 3 && s.nmps < MAX) {
			p.bytes = (unsigned long long)bytes;
			s.mps[s.nmps++] = p;
		} else if (sscanf(line, "sample %d %u %llu %u", &m.card, &m.pid, &m.at, &m.util) == 4 && s.nsample < MAX) {
			s.sample[s.nsample++] = m;
		} else if (sscanf(line, "fail %d %63s %d", &e.card, e.call, &e.code) == 3 && s.nfail < MAX) {
			s.fail[s.nfail++] = e;
		} else if (sscanf(line, "hang %63s", e.call) == 1 && s.nhang < MAX) {
			s.hang[s.nhang++] = e;
		} else {
			fprintf(stderr, "fakenvml: bad line: %s", line);
			abort();
		}
	}
	fclose(f);
}

/* script answers for a call on a card as the script wants it, if it does. */
static int script(int card, const char *call) {
	for (int i = 0; i < s.nhang; i++) {
		while (strcmp(s.hang[i].call, call) == 0) {
			pause();
		}
	}
	for (int i = 0; i < s.nfail; i++) {
		if (s.fail[i].card == card && strcmp(s.fail[i].call, call) == 0) {
			return s.fail[i].code;
		}
	}
	return OK;
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

int nvmlInit_v2(void) { load(); return s.init; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *to, unsigned room) { return put(to, room, s.driver); }

int nvmlDeviceGetCount_v2(unsigned *n) {
	load();
	*n = (unsigned)s.ncard;
	return script(0, __func__);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **dev) {
	if (index >= (unsigned)s.ncard) {
		return INVALID;
	}
	*dev = &s.card[index];
	return script((int)index, __func__);
}

int nvmlDeviceGetUUID(void *dev, char *to, unsigned room) { BEGIN(dev); return put(to, room, c->uuid); }
int nvmlDeviceGetName(void *dev, char *to, unsigned room) { BEGIN(dev); return put(to, room, c->name); }

struct memory { unsigned long long total, free, used; };
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

struct info1 { unsigned pid; unsigned long long used; };
struct info3 { unsigned pid; unsigned long long used; unsigned gi, ci; };

/* list writes the processes of a card; stride is the size of their struct. */
static int list(struct proc *from, int n, int card, unsigned *count, char *to, size_t stride) {
	unsigned have = 0;
	for (int k = 0; k < n; k++) {
		if (from[k].card != card) {
			continue;
		}
		if (have < *count) {
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
int nvmlDeviceGetComputeRunningProcesses_v3(void *dev, unsigned *n, struct info3 *to) {
	BEGIN(dev);
	return list(s.proc, s.nproc, i, n, (char *)to, sizeof *to);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *dev, unsigned *n, struct info3 *to) {
	BEGIN(dev);
	return list(s.mps, s.nmps, i, n, (char *)to, sizeof *to);
}

struct memory2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *dev, struct memory2 *m) {
	BEGIN(dev);
	if (m->version != (sizeof *m | 2u << 24)) {
		return 25; /* argument version mismatch */
	}
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

int nvmlDeviceGetEnforcedPowerLimit(void *dev, unsigned *mw) { BEGIN(dev); *mw = 350000; return OK; }
int nvmlDeviceGetPowerUsage(void *dev, unsigned *mw) { BEGIN(dev); *mw = c->mw; return OK; }

struct putil { unsigned pid; unsigned long long at; unsigned sm, mem, enc, dec; };
int nvmlDeviceGetProcessUtilization(void *dev, struct putil *to, unsigned *n, unsigned long long since) {
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
#endif
