// Who used how much, and where that puts them.
import {call} from './api.js';
import {clean, h, pct, redraw, table} from './dom.js';
import {poll} from './poll.js';

const hours = (us) => (Number(us || 0) / 3.6e9).toFixed(1);

export function accounts(root, _, say) {
  const body = h('div');
  root.append(h('h1', {}, 'Accounts'), body);
  const line = (name, depth, u = {}) => [h('span', {}, '\u2003'.repeat(depth), clean(name)), hours(u.gpuUs), hours(u.coreUs), pct(u.sharesPart || 0), pct(u.usePart || 0), u.rank ? `${u.rank} of ${u.of}` : '', Number(u.running || 0), Number(u.waiting || 0)];
  function draw([st, report]) {
    const depth = new Map(), rows = [];
    for (const a of st.accounts ?? []) {
      depth.set(a.name, a.parent && depth.has(a.parent) ? depth.get(a.parent) + 1 : 0);
      rows.push(line(a.name, depth.get(a.name), a.use));
      for (const m of (st.members ?? []).filter((m) => m.account === a.name)) rows.push(line(m.name || m.uid, depth.get(a.name) + 1, m.use));
    }
    const used = (report.lines ?? []).map((l) => [clean(l.key), Number(l.jobs || 0), ((l.allocatedGpuSeconds || 0) / 3600).toFixed(1), ((l.usedGpuSeconds || 0) / 3600).toFixed(1), ((l.chargedGpuSeconds || 0) / 3600).toFixed(1), ((l.coreSeconds || 0) / 3600).toFixed(1)]);
    redraw(body, rows.length ? table('Accounts and their users: use in hours, and fair share', [{name: 'Account'}, {name: 'GPU-hours', n: true}, {name: 'Core-hours', n: true}, {name: 'Of shares', n: true}, {name: 'Of use', n: true}, {name: 'Place', n: true}, {name: 'Running', n: true}, {name: 'Waiting', n: true}], rows) : h('p', {}, 'There are no accounts here.'),
      h('h2', {}, 'The last 30 days'), used.length ? table('Finished jobs by user, in GPU hours', [{name: 'User', t: true}, {name: 'Jobs', n: true}, {name: 'Held', n: true}, {name: 'Computing', n: true}, {name: 'Charged', n: true}, {name: 'Core-hours', n: true}], used) : h('p', {}, 'No job has ended in the last 30 days.'));
  }
  const p = poll(30000, () => Promise.all([call('AccountService/ListStanding', {usage: true}), call('HistoryService/GetReport', {by: 'user', filter: {endedFrom: new Date(Date.now() - 30 * 86400e3).toISOString()}})]), draw, say);
  return {leave: p.leave};
}
