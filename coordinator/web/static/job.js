// One job: what show, why and eff say, what it writes, and its end.
import {call, requestID, session} from './api.js';
import {bytes, clean, cores, facts, h, jobLink, mib, milli, pct, redraw, seconds, span, table, text, time, when, words} from './dom.js';
import {jobs, over, waits} from './store.js';
import {poll} from './poll.js';
import {curves} from './curves.js';
import {log} from './log.js';

const quote = (s) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(s) ? s : `'${s.replace(/'/g, "'\\''")}'`);
const raw = (b64) => new TextDecoder().decode(bytes(b64));

// resubmit is the command line that asks for the same again.
function resubmit(j) {
  const s = j.spec;
  if (!s?.command?.length) return '';
  const out = ['berth submit'];
  const add = (flag, v) => { if (v) out.push(v === true ? flag : `${flag} ${quote(String(v))}`); };
  add('--name', s.name || j.name);
  add('--gpus', s.gpus);
  add('--exclusive', s.exclusive);
  add('--gpu-type', s.gpuType);
  add('--gpu-mem', Number(s.gpuMemMib) ? `${s.gpuMemMib}M` : '');
  add('--cpus', Number(s.cpuMilli) ? cores(s.cpuMilli) : '');
  add('--mem', Number(s.memMib) ? `${s.memMib}M` : '');
  add('--time', s.timeLimit ? span(seconds(s.timeLimit)).replace(/^(\d+)-/, '$1-') : '');
  add('--partition', s.partition);
  add('--account', s.account);
  add('--image', s.image);
  add('--nodes', s.nodes > 1 && s.nodes);
  return `${out.join(' ')} -- ${s.command.map((c) => quote(raw(c))).join(' ')}`;
}

const share = (g) => `${clean(g.type)} ${g.index ?? 0}: ${g.share?.exclusive ? 'all of it' : mib(g.share?.memMib)}`;

// path is the name of a job's file with what of Slurm's patterns is the same for all
// its nodes and processes, as berth show has it.
function path(j, pattern) {
  if (Number(j.arrayCount || 0) > 1 || /%[0-9]*[Nnst]/.test(pattern)) return pattern;
  const as = {j: j.id, J: j.id, A: j.arrayJobId || j.id, a: j.arrayTaskId, x: clean(j.name), u: clean(j.user)};
  return pattern.replace(/%(%|[jJAaxu])/g, (all, c) => (c === '%' ? '%' : as[c] ?? all));
}

// trial is the values of a trial of a study, and how good it is.
function trial(j) {
  const t = j.trial, best = t?.best === undefined ? '' : `${t.metric} ${Number(t.last).toPrecision(5)}, the best ${Number(t.best).toPrecision(5)} at step ${t.bestStep || 0}`;
  return clean([(t?.params ?? []).join(' '), best].filter(Boolean).join('; '));
}

// progress is how far a job said that it is, as berth show has it.
function progress(j) {
  const p = (j.attempts ?? []).at(-1)?.progress, total = Number(p?.total || 0), step = Number(p?.step || 0), left = (time(p?.ends) - Date.now()) / 1000;
  if (!p) return '';
  return `step ${step.toLocaleString('en')}` + (total ? ` of ${total.toLocaleString('en')} (${Math.floor(100 * step / total)} %)` : '') + (!over(j.state) && left > 0 ? `, about ${span(left)} left` : '');
}

function what(j) {
  const s = j.spec ?? {}, exit = j.exitCode === undefined ? '' : j.signal ? `signal ${j.signal}` : `exit code ${j.exitCode}`;
  const asked = [s.gpus && `${s.gpus} GPU${s.gpus > 1 ? 's' : ''}`, s.exclusive && 'exclusive', s.gpuType && `type ${clean(s.gpuType)}`, Number(s.gpuMemMib) && `${mib(s.gpuMemMib)} of each`,
    Number(s.cpuMilli) && `${cores(s.cpuMilli)} cores`, Number(s.memMib) && `memory ${mib(s.memMib)}`, s.timeLimit && `at most ${span(seconds(s.timeLimit))}`, s.nodes > 1 && `${s.nodes} nodes`];
  return facts('User', clean(j.user), 'State', words(j.state) + (j.cancelRequested && !over(j.state) ? ' (its end was asked for)' : ''), 'Reason', [words(j.reason), j.reasonDetail && clean(j.reasonDetail)].filter(Boolean).join(': '),
    'Exit', exit, 'Node', clean(j.nodeList || j.node), 'GPUs', (j.gpus ?? []).map(share).join(', '), 'Partition', clean(j.partition), 'Account', clean(j.account),
    'Beside', (j.neighbours ?? []).length ? j.neighbours.map((id) => [jobLink(id), ' ']) : '', 'Slowed down', j.predictedSlowdown ? `${j.predictedSlowdown.toFixed(2)} times by its neighbours, as predicted` : '',
    'Submitted', when(time(j.submitted)), 'Started', when(time(j.started)), 'Ended', when(time(j.ended)),
    'Ran', j.started && !waits(j.state) ? span(((time(j.ended) || Date.now()) - time(j.started)) / 1000) : '', 'Progress', progress(j), j.trial?.params ? 'Trial' : 'Metric', trial(j), 'Waits for', clean(j.dependency),
    'Predicted', predicted(j.predicted),
    'Asked for', asked.filter(Boolean).join(', '), 'Command', (s.command ?? []).map((c) => clean(quote(raw(c)))).join(' '), 'Image', clean(s.image), 'Directory', s.dir && text(s.dir), 'Output', s.stdout && path(j, text(s.stdout)), 'Comment', clean(s.comment));
}

// called is what people call a job: tasks of arrays are 12_3.
const called = (j) => (j.arrayJobId && !j.array ? `${j.arrayJobId}_${j.arrayTaskId ?? 0}` : String(j.id));

// predicted says what is expected of a job, in the words of berth show.
function predicted(p) {
  if (!p) return '';
  const time = p.seconds ? span(p.seconds) : 'time unknown', cpu = p.gpuType === 'cpu';
  if ((!p.source || p.source === 'none') && p.timeConfidence && !cpu) return `what it needs of GPUs is not known: whole ones until a run was measured; ${time}`;
  if (!p.source || p.source === 'none') return `nothing is known about it${cpu ? '' : ': whole GPUs until a run was measured'}, ${time}`;
  const sure = `; confidence ${pct(p.confidence || 0)}, from ${clean(p.source)}`;
  if (cpu) return `memory ${mib(p.hostMemMib)}, ${cores(p.cpuMilli)} cores, ${time}${sure}`;
  return `${mib(p.gpuMemMib)} of a GPU, ${milli(p.gpuUtilMilli)} busy, ${time} on ${clean(p.gpuType)}${sure}`;
}

function why(r) {
  const f = r.forecast, fs = r.fairShare;
  return [(r.explanations ?? []).length ? h('ul', {}, r.explanations.map((x) => h('li', {}, `${x.count > 1 ? `${x.count} × ` : ''}${words(x.code)}${x.detail ? `: ${clean(x.detail)}` : ''}`))) : h('p', {}, 'Nothing is in its way except its turn.'),
    facts('Nearest', clean(f?.missing), 'Expected start', f?.startP50 && `${when(time(f.startP50))}, in nine cases of ten by ${when(time(f.startP90))}`,
      'Room in the quota', r.room && `${when(time(r.room.p50))}, when ${clean(r.room.words)}`, 'Fair share', fs && `place ${fs.rank ?? 0} of ${fs.of ?? 0}`)];
}

// used is what of what was asked for was used.
function used(j) {
  const m = j.measured, s = j.spec ?? {};
  if (!m || !(m.seconds || Number(m.hostMemMib))) return h('p', {}, over(j.state) ? 'What it used was not measured.' : 'Its full usage is known when it ends.');
  const held = Number(j.gpus?.[0]?.share?.memMib || 0), rows = [];
  const add = (name, part, words) => rows.push([name, h('meter', {min: 0, max: 1, value: Math.min(1, part), 'aria-label': `${name}: ${pct(part)}`}), pct(part), words]);
  if (j.gpus?.length) {
    add('GPU', Number(m.gpuUtilMilli || 0) / 1000, 'busy on average');
    if (held) add('GPU memory', Number(m.gpuMemMib || 0) / held, `${mib(m.gpuMemMib)} of ${mib(held)} at most`);
  }
  if (Number(s.cpuMilli)) add('CPU', Number(m.cpuMilli || 0) / Number(s.cpuMilli), `${cores(m.cpuMilli)} of ${cores(s.cpuMilli)} cores on average`);
  if (Number(s.memMib)) add('Memory', Number(m.hostMemMib || 0) / Number(s.memMib), `${mib(m.hostMemMib)} of ${mib(s.memMib)} at most`);
  if (s.timeLimit) add('Time limit', (m.seconds || 0) / seconds(s.timeLimit), `${span(m.seconds || 0)} of ${span(seconds(s.timeLimit))}`);
  return [table('What it used of its allocation', [{name: 'What'}, {name: 'Bar'}, {name: 'Part', n: true}, {name: 'That is'}], rows),
    facts('Power', Number(m.powerW) ? `${m.powerW} W on average, including its neighbours` : '', 'Energy', Number(m.profile?.energyJ) ? `${(m.profile.energyJ / 3.6e6).toFixed(3)} kWh` : '', 'Out of memory', m.gpuOom && 'it was refused GPU memory')];
}

function attempts(j) {
  return table('Attempts', [{name: 'No.', n: true}, {name: 'State'}, {name: 'Node'}, {name: 'Started'}, {name: 'Ended'}, {name: 'Why there', t: true}], (j.attempts ?? []).map((a) => [a.no, words(a.state), clean(a.node), when(time(a.started)), when(time(a.ended)),
    [a.why && clean(a.why), a.reason && words(a.reason), a.reasonDetail && clean(a.reasonDetail)].filter(Boolean).join('; ')]));
}

function cancelButton(j, done) {
  const say = h('p', {role: 'status'});
  const ask = h('dialog', {'aria-labelledby': 'ask'}, h('p', {id: 'ask'}, `End job ${called(j)}, ${clean(j.name)}?`), h('form', {method: 'dialog', class: 'bar'}, h('button', {value: 'no', autofocus: true}, 'Let it run'), h('button', {class: 'danger', value: 'yes', id: 'yes'}, 'End it')));
  ask.addEventListener('close', async () => {
    if (ask.returnValue !== 'yes') return;
    try {
      const r = (await call('JobService/CancelJobs', {requestId: requestID(), ids: [j.id]})).results?.[0] ?? {};
      say.textContent = {CANCEL_OUTCOME_CANCELLED: 'Cancellation was requested.', CANCEL_OUTCOME_ALREADY_FINISHED: 'It had already ended.', CANCEL_OUTCOME_DENIED: 'It belongs to another user.', CANCEL_OUTCOME_NOT_FOUND: 'There is no such job.'}[r.outcome] ?? clean(r.outcome);
      done();
    } catch (err) { say.textContent = err.message; }
  });
  return h('div', {class: 'bar'}, h('button', {id: 'cancel', class: 'danger', type: 'button', onclick: () => { ask.returnValue = ''; ask.showModal(); }}, 'Cancel this job'), say, ask);
}

export function job(root, arg, say) {
  const id = String(Number(arg) || 0);
  const head = h('h1', {}, `Job ${id}`), act = h('div'), body = h('div'), shown = h('div'), out = h('div');
  root.append(head, act, body, shown, out);
  let was = '', reader = null, plots = null;

  async function get() {
    const j = (await call('JobService/GetJob', {id})).job;
    const reasons = waits(j.state) ? await call('JobService/ExplainJob', {id}) : null;
    return {j, reasons};
  }

  function draw({j, reasons}) {
    const mine = j.uid === session.me.uid || session.me.admin, line = resubmit(j);
    head.textContent = `Job ${called(j)}: ${clean(j.name)}`;
    if (!mine || over(j.state)) act.querySelector('#cancel')?.remove();
    else if (!act.firstChild) act.append(cancelButton(j, p.ask));
    const part = (name, kids) => h('section', {'aria-label': name}, h('h2', {}, name), kids);
    const news = [part('What it is', what(j)), reasons && part('Why it waits', why(reasons)), !waits(j.state) && mine && part('What it uses', used(j)), (j.attempts ?? []).length > 0 && part('Attempts', attempts(j)),
      line && part('Submit it again', [h('pre', {id: 'again'}, clean(line)), h('button', {type: 'button', onclick: (e) => navigator.clipboard?.writeText(line).then(() => { e.target.textContent = 'Copied'; })}, 'Copy'), h('p', {class: 'dim'}, 'This line does not include its environment, script and files.')])].filter(Boolean);
    const now = JSON.stringify([j, reasons]);
    if (now !== was || !over(j.state)) redraw(body, ...news);
    was = now;
    if (!mine || waits(j.state) || !(j.attempts ?? []).length) return;
    plots ??= curves(shown, id, () => over(j.state), (g) => Number((j.gpus ?? []).find((x) => (x.index ?? 0) === (g.index ?? 0) && clean(j.node) === clean(g.node))?.share?.memMib || 0));
    reader ??= log(out, id);
  }

  const p = poll(10000, get, draw, say);
  let seen = jobs.get(Number(id))?.state;
  return {
    update() {
      const now = jobs.get(Number(id))?.state;
      if (now !== seen) { seen = now; p.ask(); }
    },
    leave() { p.leave(); reader?.leave(); plots?.leave(); },
  };
}
