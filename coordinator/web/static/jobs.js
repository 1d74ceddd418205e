// The list of jobs: mine or all, filtered, arrays folded, a hundred rows at a time.
import {call, session} from './api.js';
import {h, jobLink, redraw, span, table, time, when, words, clean} from './dom.js';
import {jobs as all, state} from './store.js';

const perPage = 100;
const rank = (r) => (r.over ? 2 : r.waits ? 1 : 0);
const sorts = {
  Job: (a, b) => a.id - b.id, Name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0), User: (a, b) => (a.user < b.user ? -1 : a.user > b.user ? 1 : 0),
  State: (a, b) => rank(a) - rank(b) || b.started - a.started || a.id - b.id, GPUs: (a, b) => b.gpus - a.gpus, Time: (a, b) => b.started - a.started,
};
const kept = {whose: 'mine', find: '', which: 'live', sort: 'State', down: false, page: 0, open: new Set()};

// fold makes one row of the rows of an array.
function fold(rows) {
  const out = [], of = new Map();
  for (const r of rows) {
    const first = r.array && of.get(r.array);
    if (!r.array || !first) {
      const f = {rows: [r], head: r};
      if (r.array) of.set(r.array, f);
      out.push(f);
    } else first.rows.push(r);
  }
  return out;
}

const counted = (n) => `${n} job${n === 1 ? '' : 's'}`;

function counts(rows) {
  const n = {};
  for (const r of rows) n[r.state] = (n[r.state] ?? 0) + r.count;
  return Object.entries(n).map(([s, k]) => `${k} ${words(s)}`).join(', ');
}

// whole is where the tasks of an array run, why those that wait do, and the cards of all.
function whole(rows) {
  const run = rows.filter((r) => !r.waits && !r.over), of = run.length ? run : rows;
  const places = [...new Set(of.flatMap((r) => (r.nodes ? [r.nodes] : [])))];
  return {nodes: places.length > 3 ? `${places.length} nodes` : places.join(', '), gpus: run.reduce((n, r) => n + (r.gpus || 0), 0) || rows[0].gpus};
}

export function jobs(root, _, say) {
  let ended = [], stopped = false;
  const note = h('p', {class: 'dim', role: 'status'}), list = h('div'), pager = h('div', {class: 'bar'});
  const pick = (id, name, key, options) => h('label', {for: id}, name, h('select', {id, onchange: (e) => { kept[key] = e.target.value; kept.page = 0; fetchEnded(); update(); }},
    options.map(([v, text]) => h('option', {value: v, selected: kept[key] === v}, text))));
  root.append(h('h1', {}, 'Jobs'), h('form', {class: 'bar', role: 'search', onsubmit: (e) => e.preventDefault()},
    pick('whose', 'Whose', 'whose', [['mine', 'Mine'], ['all', 'Everybody’s']]), pick('which', 'Which', 'which', [['live', 'Not ended'], ['waiting', 'Waiting'], ['running', 'Running'], ['ended', 'Ended']]),
    h('label', {for: 'find'}, 'Filter', h('input', {id: 'find', type: 'search', value: kept.find, autocomplete: 'off', placeholder: 'name, user, state, node …', oninput: (e) => { kept.find = e.target.value; kept.page = 0; update(); }}))), note, list, pager);

  async function fetchEnded() {
    if (kept.which !== 'ended') return;
    try {
      const filter = kept.whose === 'mine' ? {users: [String(session.me.uid)]} : {};
      const got = await call('HistoryService/ListHistory', {filter, limit: 1000});
      if (stopped) return;
      ended = (got.jobs ?? []).map((j) => ({
        id: Number(j.id), name: clean(j.name), user: clean(j.user), uid: Number(j.uid || 0), state: j.state, reason: j.reason ?? '', gpus: Number(j.gpusWanted || 0), nodes: j.nodeList || j.node || '',
        array: Number(j.arrayJobId || 0), tasks: j.arrayTasks || String(j.arrayTaskId ?? ''), count: Number(j.arrayCount || 1), started: time(j.started), ended: time(j.ended), over: true,
        label: j.arrayJobId ? `${j.arrayJobId}_${j.arrayTasks ? `[${j.arrayTasks}]` : j.arrayTaskId ?? 0}` : String(j.id),
      })).map((r) => ({...r, low: [r.label, r.name, r.user, r.state, r.nodes, r.reason].join('\n').toLowerCase()}));
      say(got.behind || got.incomplete ? 'the newest ended jobs may be missing: this coordinator is still fetching them' : null);
    } catch (err) { say(err.message); }
    update();
  }

  function rowsNow() {
    const find = kept.find.toLowerCase().split(/\s+/).filter(Boolean), mine = kept.whose === 'mine';
    const from = kept.which === 'ended' ? new Map([...ended.map((r) => [r.id, r]), ...[...all.values()].filter((r) => r.over).map((r) => [r.id, r])]).values() : all.values();
    const keep = {live: (r) => !r.over, waiting: (r) => r.waits, running: (r) => !r.over && !r.waits, ended: (r) => r.over}[kept.which];
    const rows = [];
    for (const r of from) if (keep(r) && (!mine || r.uid === session.me.uid) && find.every((f) => r.low.includes(f))) rows.push(r);
    const by = kept.which === 'ended' && kept.sort === 'State' ? (a, b) => b.ended - a.ended : sorts[kept.sort];
    rows.sort(by);
    if (kept.down) rows.reverse();
    return rows;
  }

  function line(r, label, more) {
    const now = Date.now();
    return [label, h('span', {}, r.name, more), r.user, words(r.state), r.gpus || '', r.over || !r.waits ? clean(r.nodes) : words(r.reason),
      r.started && !r.waits ? span(((r.ended || now) - r.started) / 1000) : ''];
  }

  function update() {
    const rows = rowsNow(), folded = fold(rows), pages = Math.max(1, Math.ceil(folded.length / perPage));
    kept.page = Math.min(kept.page, pages - 1);
    const cols = [['Job'], ['Name', true], ['User'], ['State'], ['GPUs'], ['Where or why', true], ['Time']].map(([name, t]) => ({name, t, n: name === 'GPUs' || name === 'Time', sorted: kept.sort === name && sorts[name] ? (kept.down ? 'descending' : 'ascending') : null, head: sorts[name] && h('button', {
      type: 'button', 'aria-label': `Sort by ${name}`, onclick: () => { kept.down = kept.sort === name && !kept.down; kept.sort = name; update(); },
    }, name, kept.sort === name ? (kept.down ? ' ▲' : ' ▼') : '')}));
    const out = [];
    for (const f of folded.slice(kept.page * perPage, (kept.page + 1) * perPage)) {
      if (f.rows.length === 1) { out.push(line(f.head, jobLink(f.head.id, f.head.label))); continue; }
      const id = f.head.array, open = kept.open.has(id);
      out.push(line({...f.head, state: counts(f.rows), ...whole(f.rows)}, h('button', {type: 'button', 'aria-expanded': String(open), onclick: () => { open ? kept.open.delete(id) : kept.open.add(id); update(); }}, `${open ? '▾' : '▸'} ${id}`), ` (${f.rows.reduce((n, r) => n + r.count, 0)} tasks)`));
      if (open) for (const r of f.rows.slice(0, perPage)) out.push(line(r, jobLink(r.id, r.label)));
    }
    note.textContent = !state.loaded ? state.words : `${counted(rows.reduce((n, r) => n + r.count, 0))}${kept.which === 'ended' ? ', of the newest 1,000' : ''}`;
    redraw(list, out.length ? table('Jobs', cols, out) : h('p', {}, state.loaded ? 'None.' : ''));
    const go = (d) => () => { kept.page += d; update(); scrollTo(0, 0); };
    redraw(pager, ...(pages > 1 ? [h('button', {type: 'button', onclick: go(-1), disabled: kept.page === 0}, 'Previous'), h('span', {}, `page ${kept.page + 1} of ${pages}`),
      h('button', {type: 'button', onclick: go(1), disabled: kept.page === pages - 1}, 'Next')] : []));
  }
  fetchEnded();
  return {update, leave: () => { stopped = true; }};
}
