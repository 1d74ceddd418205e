// How the coordinators, the nodes and the predictor are.
import {call} from './api.js';
import {clean, h, pct, redraw, table, time, when, words} from './dom.js';
import {poll} from './poll.js';

const gib = (n) => `${(Number(n || 0) / 2 ** 30).toFixed(1)} GiB`;

// faults are what is wrong with nodes and cards now.
function faults(nodes) {
  const out = [];
  for (const n of nodes) {
    const at = h('a', {href: `#/nodes/${encodeURIComponent(n.id)}`}, clean(n.id));
    if (n.state !== 'ready' || n.problem || n.drain) out.push([at, '', [words(n.state), n.drain && `draining ${clean(n.drainReason)}`, clean(n.problem), clean(n.cutOff)].filter(Boolean).join(', ')]);
    for (const g of n.gpus ?? []) if ((g.state && g.state !== 'ok') || g.drain || Number(g.gossipStrayMib)) out.push([at.cloneNode(true), g.index ?? 0, [words(g.state), clean(g.stateReason), g.drain && `drained ${clean(g.drainReason)}`, Number(g.gossipStrayMib) && `${g.gossipStrayMib} MiB held by processes outside any job`].filter(Boolean).join(', ')]);
  }
  return out;
}

export function admin(root, _, say) {
  const body = h('div');
  root.append(h('h1', {}, 'Admin'), body);
  function draw([status, nodes, model]) {
    const all = nodes.nodes ?? [], wrong = faults(all), versions = new Map(), a = model.accuracy;
    for (const n of all) versions.set(n.version, (versions.get(n.version) ?? 0) + 1);
    const events = all.flatMap((n) => (n.history ?? []).map((e) => [n, e])).sort((x, y) => time(y[1].at) - time(x[1].at)).slice(0, 30);
    redraw(body, 
      table('Coordinators', [{name: 'Name'}, {name: 'Role', t: true}, {name: 'Version'}, {name: 'Applied', n: true}, {name: 'Disk free', n: true}, {name: 'Ended jobs kept', n: true}], (status.members ?? []).map((m) => [clean(m.id),
        h('span', {class: m.reachable ? null : 'bad'}, [m.leader ? 'leads' : m.reachable ? 'follows' : 'does not answer', clean(m.diskProblem), clean(m.historyProblem)].filter(Boolean).join(', ')), clean(m.version), m.appliedIndex ?? 0, gib(m.diskFree), m.historyJobs ?? 0])),
      h('h2', {}, 'Faults'), wrong.length ? table('Nodes and GPUs with faults', [{name: 'Node'}, {name: 'GPU', n: true}, {name: 'What', t: true}], wrong) : h('p', {}, 'All nodes and GPUs are healthy.'),
      h('h2', {}, 'Versions of agents'), table('Agents', [{name: 'Version'}, {name: 'Nodes', n: true}], [...versions].map(([v, n]) => [clean(v), n])),
      h('h2', {}, 'Predictions'), a?.runs ? table('Errors of the predictions for the newest runs', [{name: 'Of'}, {name: 'Runs', n: true}, {name: 'Median error', n: true}, {name: 'Note', t: true}], [
        ['GPU memory', a.runs, pct(a.medianError || 0), `${pct(a.withinP95 || 0)} of the runs stayed within the upper estimate; ${a.outOfMemory ?? 0} ran out of memory`], ['utilization', a.utilRuns ?? 0, pct(a.utilMedianError || 0), ''], ['time', a.timeRuns ?? 0, pct(a.timeMedianError || 0), '']]) : h('p', {}, 'No run has been predicted and measured yet.'),
      h('h2', {}, 'What happened last'), events.length ? table('Events of nodes and GPUs', [{name: 'When'}, {name: 'Node'}, {name: 'GPU', n: true}, {name: 'What'}, {name: 'Detail', t: true}], events.map(([n, e]) => [when(time(e.at)), clean(n.id), e.index ?? '', words(e.kind), clean(e.detail)])) : h('p', {}, 'Nothing.'));
  }
  // The weights in use are the newest version that is in use; without any, the built-in one.
  async function get() {
    const [status, nodes, models] = await Promise.all([call('ClusterService/GetStatus'), call('ClusterService/ListNodes'), call('ModelService/ListModels')]);
    const version = models.models?.find((m) => m.inUse)?.version ?? '0';
    return [status, nodes, await call('ModelService/GetModel', {version})];
  }
  const p = poll(10000, get, draw, say);
  return {leave: p.leave};
}
