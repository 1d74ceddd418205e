// The cluster at a glance: its cards, and who waits for what.
import {call} from './api.js';
import {h, milli, mib, redraw, table, words, clean} from './dom.js';
import {jobs, again, state} from './store.js';
import {poll} from './poll.js';

const level = (part) => (part < 0 ? 'ux' : `u${part < 0.05 ? 0 : part < 0.3 ? 1 : part < 0.55 ? 2 : part < 0.8 ? 3 : 4}`);

const measures = {
  memory: ['Memory promised to jobs', (g) => Number(g.ledgerUsedMib || 0) / Math.max(1, Number(g.sellableMib || g.memMib || 1))],
  use: ['Use, as measured', (g) => (Number(g.measuredUtilMilli || 0) < 0 ? -1 : Number(g.measuredUtilMilli || 0) / 1000)],
};

export const fault = (n, g) => n.state !== 'ready' || (g.state && g.state !== 'ok') || g.drain || n.drain;

function cell(n, g, part) {
  const count = Number(g.jobs?.length || 0);
  const say = `${clean(n.id)} GPU ${g.index ?? 0}, ${clean(g.type)}: ${count} job${count === 1 ? '' : 's'}, ${milli(g.measuredUtilMilli)} busy, ${mib(g.ledgerUsedMib)} of ${mib(g.sellableMib)} promised${fault(n, g) ? ', takes no jobs' : ''}`;
  return h('a', {class: `cell ${level(part)} ${fault(n, g) ? 'fault' : ''}`, href: `#/nodes/${encodeURIComponent(n.id)}`, title: say, 'aria-label': say, tabindex: '-1'}, count || '');
}

export function overview(root, _, say) {
  const tiles = h('ul', {class: 'tiles', 'aria-label': 'Counts'});
  const cards = h('ul', {class: 'cards'});
  const queue = h('div');
  const by = h('select', {id: 'by', onchange: () => draw()}, Object.entries(measures).map(([k, [name]]) => h('option', {value: k}, name)));
  by.value = 'memory';
  let nodes = [];
  root.append(h('h1', {}, 'Overview'), tiles, h('section', {'aria-labelledby': 'hcards'}, h('h2', {id: 'hcards'}, 'GPUs'),
    h('div', {class: 'bar'}, h('label', {for: 'by'}, 'Colour', by)),
    h('div', {class: 'legend', 'aria-hidden': 'true'}, ['u0', 'u1', 'u2', 'u3', 'u4', 'ux'].map((c, i) => [h('span', {class: `cell ${c}`}), ['idle', 'to 30 %', 'to 55 %', 'to 80 %', 'more', 'not known'][i]]),
      h('span', {class: 'cell u0 fault'}), 'takes no jobs; the figure is how many jobs a GPU has'), cards),
    h('section', {'aria-labelledby': 'hqueue'}, h('h2', {id: 'hqueue'}, 'Waiting'), queue));

  function draw() {
    const [, of] = measures[by.value];
    redraw(cards, ...nodes.map((n) => h('li', {}, h('a', {class: 'name', href: `#/nodes/${encodeURIComponent(n.id)}`}, clean(n.id)),
      h('span', {class: 'cells'}, (n.gpus ?? []).map((g) => cell(n, g, of(g)))))));
    update();
  }

  function update() {
    let running = 0, waiting = 0;
    const groups = new Map();
    for (const j of jobs.values()) {
      if (j.over) continue;
      if (!j.waits) { running += j.count; continue; }
      waiting += j.count;
      const key = JSON.stringify([j.gpus ? j.gpuType || (j.gpuType === undefined ? 'not known yet' : 'any') : 'no GPU', j.reason]);
      const g = groups.get(key) ?? {jobs: 0, gpus: 0};
      g.jobs += j.count;
      g.gpus += j.count * j.gpus;
      groups.set(key, g);
    }
    again();
    const all = nodes.flatMap((n) => (n.gpus ?? []).map((g) => [n, g]));
    const busy = all.filter(([, g]) => g.jobs?.length).length, out = all.filter(([n, g]) => fault(n, g)).length;
    redraw(tiles, ...[['running', running], ['waiting', waiting], ['GPUs in use', `${busy} of ${all.length}`], ['GPUs out of service', out], ['nodes', nodes.length]]
      .map(([k, v]) => h('li', {}, h('b', {}, state.loaded || k.includes('GPU') || k === 'nodes' ? v : '…'), k)));
    const rows = [...groups].map(([k, g]) => [...JSON.parse(k), g]).sort((a, b) => b[2].jobs - a[2].jobs);
    redraw(queue, rows.length ? table('Waiting jobs, by requested GPU type and reason', [{name: 'Type'}, {name: 'Why', t: true}, {name: 'Jobs', n: true}, {name: 'GPUs', n: true}],
      rows.slice(0, 100).map(([type, why, g]) => [clean(type), words(why) || 'not said yet', g.jobs, g.gpus])) : h('p', {}, 'No job waits.'));
  }

  const p = poll(5000, () => call('ClusterService/ListNodes', {brief: true}), (got) => { nodes = got.nodes ?? []; draw(); }, say);
  return {update, leave: p.leave};
}
