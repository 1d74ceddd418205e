// Services and their replicas: who takes requests, and what is wrong with those that do not.
import {call, session} from './api.js';
import {clean, h, jobLink, redraw, seconds, span, table, time, words} from './dom.js';
import {poll} from './poll.js';

const ended = new Set(['COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL', 'PREEMPTED', 'DEADLINE']);

// gather makes services of their jobs, which come by id, so that the newest revision is last.
function gather(jobs) {
  const by = new Map();
  for (const j of jobs.filter((j) => !ended.has(j.state))) {
    const r = j.replica ?? {}, key = `${j.user}/${r.service}`;
    if (!by.has(key)) by.set(key, {name: r.service, user: j.user, uid: j.uid, revisions: new Map(), rows: [], ready: 0});
    const s = by.get(key);
    s.revisions.set(j.arrayJobId, r);
    if ((j.arrayCount ?? 1) > 1 || (!r.state && j.reason === 'Standby')) continue;
    if (r.state === 'ready') s.ready++;
    s.rows.push({id: j.id, label: `${j.arrayJobId}_${j.arrayTaskId ?? 0}`, state: r.state || words(j.state), since: time(r.since), node: j.node, address: r.port ? `${r.address}:${r.port}` : '', why: r.why || (r.state ? '' : j.reasonDetail || words(j.reason))});
  }
  return [...by.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function standing(s) {
  const want = [...s.revisions.values()].at(-1).want ?? 0;
  if (s.revisions.size > 1) return `updating, ${s.ready} of ${want} ready`;
  if (want === 0) return 'asleep: no replica runs until a request arrives';
  return `${s.ready} of ${want} ready`;
}

// objective is what was promised of a service and what proxies measure, as far as the viewer
// may know it: measured figures come to its owner and to administrators.
export function objective(r) {
  const out = [];
  if (r.slo) {
    out.push(`objective ${clean(r.slo)}`);
    if (r.measured) out.push(`now ${Math.round(1000 * seconds(r.measured))} ms`);
    if (r.asked) out.push(`${((100 * (r.within ?? 0)) / r.asked).toFixed(1)} % within of ${Math.round(r.asked)} requests of the last hour`);
  }
  if (r.rate !== undefined) out.push(`${r.rate.toFixed(1)} requests a second`);
  if (r.inFlight !== undefined) out.push(`${r.inFlight} in flight`);
  return out.join(', ');
}

// forecast is why there are to be so many replicas, and the load that is to be expected.
export function forecast(r) {
  const out = [];
  if (r.wantWhy) out.push(`wants ${r.want ?? 0}: ${clean(r.wantWhy)}`);
  if (r.forecast !== undefined) out.push(`forecast ${r.forecast.toFixed(1)} from ${new Date(time(r.forecastAt)).toISOString().slice(11, 16)}Z on, which needs ${r.forecastWant ?? 0}`);
  else if (r.noForecast) out.push('no forecast');
  else if (r.loadKnown) out.push(`no forecast yet, the load of ${span(seconds(r.loadKnown))} is known`);
  return out.join(', ');
}

export function services(root, _, say) {
  const body = h('div');
  root.append(h('h1', {}, 'Services'), body);
  function draw({jobs}) {
    const all = gather(jobs ?? []), mine = (s) => s.uid === session.me.uid;
    all.sort((a, b) => mine(b) - mine(a));
    if (!all.length) {
      redraw(body, h('p', {}, 'No service is running here. Start one with'), h('pre', {}, 'berth service create NAME --replicas 2 --gpus 0.25 --health /healthz -- COMMAND'));
      return;
    }
    const columns = [{name: 'Replica'}, {name: 'State'}, {name: 'For', n: true}, {name: 'Node', t: true}, {name: 'Address'}, {name: 'Why', t: true}];
    redraw(body, ...all.flatMap((s) => [h('h2', {}, clean(s.name)),
      objective([...s.revisions.values()].at(-1)) && h('p', {}, objective([...s.revisions.values()].at(-1))),
      forecast([...s.revisions.values()].at(-1)) && h('p', {}, forecast([...s.revisions.values()].at(-1))),
      s.rows.length ? table(`Of ${clean(s.user)}: ${standing(s)}`, columns, s.rows.map((r) => [jobLink(r.id, r.label), clean(r.state), r.since ? span((Date.now() - r.since) / 1000) : '', clean(r.node), clean(r.address), clean(r.why)])) : h('p', {}, `Of ${clean(s.user)}: ${standing(s)}`)].filter(Boolean)));
  }
  const p = poll(5000, () => call('JobService/ListJobs', {brief: true, replicas: true, pageSize: 20000}), draw, say);
  return {leave: p.leave};
}
