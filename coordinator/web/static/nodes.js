// The nodes, and one of them with what happened to it.
import {call} from './api.js';
import {clean, cores, facts, h, jobLink, mib, milli, redraw, table, time, when, words} from './dom.js';
import {fault} from './overview.js';
import {poll} from './poll.js';

const where = (n) => `#/nodes/${encodeURIComponent(n.id)}`;
const stand = (n) => words(n.state) + (n.drain ? `, draining${n.drainReason ? `: ${clean(n.drainReason)}` : ''}` : '') + (n.problem ? `, ${clean(n.problem)}` : '');

const cards = (n) => table('GPUs', [{name: 'No.', n: true}, {name: 'Type'}, {name: 'State', t: true}, {name: 'Busy', n: true}, {name: 'Promised', n: true}, {name: 'In use', n: true}, {name: 'Power', n: true}, {name: 'Temperature', n: true}, {name: 'Jobs'}],
  (n.gpus ?? []).map((g) => [g.index ?? 0, clean(g.type), h('span', {class: fault(n, g) ? 'bad' : null}, words(g.state) + (g.stateReason ? `: ${clean(g.stateReason)}` : '') + (g.drain ? ', drained' : '')), milli(g.measuredUtilMilli),
    `${mib(g.ledgerUsedMib)} of ${mib(g.sellableMib)}`, Number(g.measuredUsedMib || 0) < 0 ? 'unknown' : mib(g.measuredUsedMib), Number(g.powerW) ? `${g.powerW} W` : '–', Number(g.temperatureC) ? `${g.temperatureC} °C` : '–', (g.jobs ?? []).map((id) => [jobLink(id), ' '])]));

export function nodes(root, arg, say) {
  const id = arg && decodeURIComponent(arg), body = h('div');
  root.append(h('h1', {}, id ? `Node ${clean(id)}` : 'Nodes'), body);
  function one(n) {
    if (!n) return [h('p', {}, 'There is no such node.')];
    return [facts('State', stand(n), 'Address', clean(n.address), 'Cores', `${cores(n.cpuUsedMilli)} of ${cores(n.cpuMilli)} promised`, 'Memory', `${mib(n.memUsedMib)} of ${mib(n.memMib)} promised`, 'Partitions', clean((n.partitions ?? []).join(', ')),
      'Features', clean((n.features ?? []).join(', ')), 'Reservation', clean(n.reservation), 'Version', clean(n.version), 'Last heard', when(time(n.lastContact)), 'Jobs', (n.jobs ?? []).map((j) => [jobLink(j), ' '])), cards(n),
      (n.history ?? []).length ? table('What happened to it', [{name: 'When'}, {name: 'GPU', n: true}, {name: 'What'}, {name: 'Detail', t: true}], n.history.toReversed().map((e) => [when(time(e.at)), e.index ?? '', words(e.kind), clean(e.detail)])) : ''];
  }
  const list = (all) => [table(`${all.length} nodes`, [{name: 'Node'}, {name: 'State', t: true}, {name: 'GPUs', n: true}, {name: 'In use', n: true}, {name: 'Type'}, {name: 'Cores', n: true}, {name: 'Memory', n: true}, {name: 'Jobs', n: true}],
    all.map((n) => [h('a', {href: where(n)}, clean(n.id)), h('span', {class: n.state === 'ready' && !n.drain && !n.problem ? null : 'bad'}, stand(n)), (n.gpus ?? []).length, (n.gpus ?? []).filter((g) => g.jobs?.length).length,
      clean([...new Set((n.gpus ?? []).map((g) => g.type))].join(', ')), `${cores(n.cpuUsedMilli)}/${cores(n.cpuMilli)}`, `${mib(n.memUsedMib)} of ${mib(n.memMib)}`, (n.jobs ?? []).length]))];
  const p = poll(5000, () => call('ClusterService/ListNodes', id ? {ids: [id]} : {brief: true}), (got) => redraw(body, ...(id ? one(got.nodes?.[0]) : list(got.nodes ?? [])).flat(9)), say);
  return {leave: p.leave};
}
