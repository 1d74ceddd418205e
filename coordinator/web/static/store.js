// The jobs that have not ended, and those that end while the page is open: a listing, then
// each change from one stream. A page that nobody looks at has no stream.
import {call, follow} from './api.js';
import {clean, time} from './dom.js';

export const jobs = new Map(); // by id
export const state = {loaded: false, words: 'Loading…', partial: 0};
const arrays = new Map(); // array id -> set of row ids
let changed = () => {};
let stop = null, loadedAt = 0, queued = false;

export function onChange(f) { changed = f; }

function tell() {
  if (queued) return;
  queued = true;
  setTimeout(() => { queued = false; changed(); }, state.loaded ? 250 : 0);
}

const num = (v) => Number(v || 0);

function fromColumns(m, i) {
  const t = (col) => (col ? m.texts[col[i]] ?? '' : '');
  const n = (col) => (col ? num(col[i]) : 0);
  const array = n(m.arrays), tasks = t(m.arrayTasks);
  return finish({
    id: n(m.ids), name: t(m.names), user: t(m.users), uid: n(m.uids), state: t(m.states), reason: t(m.reasons), partition: t(m.partitions),
    account: t(m.accounts), gpus: n(m.gpus), gpuType: t(m.gpuTypes), nodes: t(m.nodeLists), array, tasks, submitted: n(m.submitted) / 1000,
    started: n(m.started) / 1000, ended: n(m.ended) / 1000, limit: n(m.timeLimits) / 1000,
  });
}

function fromJob(j) {
  const was = jobs.get(num(j.id));
  return finish({
    id: num(j.id), name: j.name, user: j.user, uid: num(j.uid), state: j.state, reason: j.reason ?? '', partition: j.partition ?? '', account: j.account ?? '',
    gpus: num(j.gpusWanted), gpuType: was?.gpuType, nodes: j.nodeList || j.node || '', array: num(j.arrayJobId), tasks: j.arrayTasks || String(j.arrayTaskId ?? ''),
    submitted: time(j.submitted), started: time(j.started), ended: time(j.ended), limit: was?.limit ?? 0,
  });
}

export const waits = (s) => s === 'PENDING' || s === 'QUEUED';
const live = new Set(['PENDING', 'QUEUED', 'STARTING', 'RUNNING', 'COMPLETING', 'UNREACHABLE']);
export const over = (s) => !live.has(s);

function finish(r) {
  r.name = clean(r.name);
  r.user = clean(r.user);
  r.partition = clean(r.partition);
  r.spans = r.array ? spans(r.tasks) : [];
  r.count = r.array ? Math.max(1, r.spans.reduce((n, [a, b, s]) => n + Math.floor((b - a) / s) + 1, 0)) : 1;
  r.label = !r.array ? String(r.id) : r.count > 1 ? `${r.array}_[${r.tasks}]` : `${r.array}_${r.tasks}`;
  r.waits = waits(r.state);
  r.over = over(r.state);
  r.low = [r.label, r.name, r.user, r.state, r.partition, r.nodes, r.reason].join('\n').toLowerCase();
  return r;
}

// spans reads tasks as 0-9,12,20-30:2.
function spans(text) {
  const out = [];
  for (const part of text.split(',')) {
    const m = /^(\d+)(?:-(\d+)(?::(\d+))?)?$/.exec(part);
    if (m) out.push([Number(m[1]), Number(m[2] ?? m[1]), Number(m[3] ?? 1)]);
  }
  return out;
}

const within = (all, [a, b]) => all.some(([x, y, s]) => a >= x && b <= y && (a - x) % s === 0);

function put(r) {
  if (r.count > 1) { // it stands for tasks that were listed before
    for (const id of arrays.get(r.array) ?? []) {
      const o = jobs.get(id);
      if (id !== r.id && o && o.spans.every((sp) => within(r.spans, sp))) drop(o);
    }
  }
  jobs.set(r.id, r);
  if (!r.array) return;
  if (!arrays.has(r.array)) arrays.set(r.array, new Set());
  arrays.get(r.array).add(r.id);
}

function drop(r) {
  jobs.delete(r.id);
  arrays.get(r.array)?.delete(r.id);
}

// forget keeps the page small that is open for weeks.
function forget() {
  const ended = [...jobs.values()].filter((r) => r.over);
  if (ended.length > 2200) ended.sort((a, b) => a.ended - b.ended).slice(0, ended.length - 2000).forEach(drop);
}

async function list(signal) {
  let index = 0, token = '', all = [];
  do {
    const page = await call('JobService/ListJobs', {columns: 'JOB_COLUMNS_OF_ALL', pageSize: 200000, pageToken: token});
    index = index ? Math.min(index, num(page.index)) : num(page.index);
    const m = page.columns ?? {};
    for (let i = 0; i < (m.ids?.length ?? 0); i++) all.push(fromColumns(m, i));
    for (const j of page.jobs ?? []) all.push(fromJob(j));
    token = page.nextPageToken ?? '';
  } while (token);
  if (signal.aborted) return 0;
  const ended = [...jobs.values()].filter((r) => r.over); // listings have none
  jobs.clear();
  arrays.clear();
  ended.forEach(put);
  all.forEach(put);
  loadedAt = Date.now();
  state.partial = 0;
  return Math.max(1, index);
}

function take(msg) {
  for (const j of msg.jobs ?? []) {
    const r = fromJob(j);
    if (r.waits && r.gpuType === undefined) state.partial++;
    put(r);
  }
  forget();
  tell();
}

const pause = (ms) => new Promise((f) => setTimeout(f, ms));

// run keeps the jobs until stopped.
async function run(signal) {
  while (!signal.aborted) {
    try {
      const index = await list(signal);
      if (signal.aborted) return;
      state.loaded = true;
      state.words = null;
      tell();
      await follow('/api/watch', index, signal, (name, data) => {
        if (name === 'message') take(data);
        else if (name === 'state') { state.words = data; tell(); }
        else if (name === 'again') return false;
      });
    } catch (err) {
      state.words = err.message;
      tell();
    }
    await pause(1000);
  }
}

export function start() {
  if (stop) return;
  stop = new AbortController();
  run(stop.signal);
}

export function end() {
  stop?.abort();
  stop = null;
}

// again lists anew where changes left something unknown, at most every half a minute.
export function again() {
  if (state.partial && Date.now() - loadedAt > 30000 && stop) { end(); start(); }
}
