// What the last days would have been under another policy, by the simulator.
import {ask} from './api.js';
import {clean, h, pct, span, table} from './dom.js';

const days = (n) => (n === 1 ? 'day' : `${n} days`);
const time = (s) => (s === null || s === undefined ? 'not known' : s < 10 ? `${s.toFixed(1)} s` : span(s));
const part = (p) => (p === null || p === undefined ? 'not known' : pct(p / 100));

const rows = [
  ['Mean wait', 'mean_wait_s', time], ['Half wait no longer than', 'median_wait_s', time], ['Nine in ten wait no longer than', 'p90_wait_s', time],
  ['Mean time from submission to end', 'mean_jct_s', time], ['First submit to last end', 'makespan_s', time],
  ['GPU shares, allocated', 'allocation_pct', part], ['GPUs, busy', 'gpu_util_pct', part], ['GPU memory, reserved', 'reserved_mem_pct', part],
];

// bars draw the mean time from submit to end, its part that is waiting darker.
function bars(all) {
  const most = Math.max(...all.map(([, f]) => f.mean_jct_s ?? 0));
  if (!(most > 0)) return null;
  const words = (f) => `${time(f.mean_jct_s)}, of which ${time(f.mean_wait_s)} waiting`;
  const box = (cls, from, to) => h('path', {class: cls, d: `M${from} 0H${to}V10H${from}Z`});
  return h('figure', {}, h('figcaption', {class: 'dim'}, 'Mean time from submission to end; the waiting part is darker'),
    h('div', {class: 'bars', role: 'img', 'aria-label': all.map(([name, f]) => `${name}: ${words(f)}`).join('; ')},
      all.map(([name, f]) => {
        const wait = (100 * (f.mean_wait_s ?? 0)) / most, end = (100 * (f.mean_jct_s ?? 0)) / most;
        return [h('span', {}, name), h('svg', {viewBox: '0 0 100 10', preserveAspectRatio: 'none'}, box('waits', 0, Math.min(wait, end)), box('runs', Math.min(wait, end), end)), h('span', {class: 'n'}, words(f))];
      })));
}

export function whatif(root, _, say) {
  const body = h('div', {'aria-live': 'polite'});
  const form = h('form', {class: 'bar', onsubmit: (ev) => { ev.preventDefault(); run(); }}, 'Loading…');
  root.append(h('h1', {}, 'What if'), h('p', {class: 'dim'}, 'Recently ended jobs, replayed by the simulator under another policy. Nothing in the cluster is changed.'), form, body);
  let gone = false, policy, order, shares, back, button;

  function fields(c) {
    const option = (value, words) => h('option', {value}, words);
    policy = h('select', {id: 'policy'}, option('', `as it is: ${clean(c.inForce)}`), c.policies.map((p) => option(p, p)));
    order = h('select', {id: 'order'}, option('', 'that of the policy'), c.orders.map((o) => option(o, o)));
    shares = h('select', {id: 'shares'}, option('0', `as it is: ${c.shares || 'by GPU'}`), Array.from({length: c.mostShares}, (_, i) => option(String(i + 1), String(i + 1))));
    const most = Math.max(1, c.days), out = h('output', {for: 'days'});
    back = h('input', {id: 'days', type: 'range', min: '1', max: String(most), step: '1', oninput: () => shown()});
    back.value = String(Math.min(most, 7));
    const shown = () => { out.textContent = days(Number(back.value)); back.setAttribute('aria-valuetext', out.textContent); };
    shown();
    // An order goes with a placement: that of the policy in force when none is chosen.
    order.addEventListener('change', () => { if (order.value && !policy.value) policy.value = c.inForce.split('+')[0]; });
    policy.addEventListener('change', () => { if (!policy.value) order.value = ''; });
    button = h('button', {type: 'submit', disabled: !c.ready}, 'Compare');
    form.replaceChildren(h('label', {for: 'policy'}, 'Policy', policy), h('label', {for: 'order'}, 'Order of the queue', order), h('label', {for: 'shares'}, 'Jobs on a GPU', shares),
      h('label', {for: 'days'}, h('span', {}, 'The last ', out), back), button);
    if (!c.ready) body.replaceChildren(h('p', {}, 'This coordinator runs no simulator.'));
  }

  function draw(c) {
    if (!c.actual) {
      body.replaceChildren(h('p', {}, c.jobs ? `None of the ${c.jobs} jobs that ended in the last ${days(c.days)} had run.` : `No job ended in the last ${days(c.days)}.`));
      return;
    }
    const name = `${clean(c.chosen.policy)}${c.shares ? `, ${c.shares} on a GPU` : ''}`;
    const same = c.chosen.policy === c.inForce.policy && !c.shares;
    const all = [['As it happened', c.actual], [`${clean(c.inForce.policy)}, in force`, c.inForce], ...(same ? [] : [[name, c.chosen]])];
    const read = (f) => (f === c.actual ? String(f.jobs) : `${f.completed} of ${f.jobs}`);
    body.replaceChildren(
      h('h2', {}, `The last ${days(c.days)}`), bars(all) ?? '',
      table(`${c.replayed} of ${c.jobs} jobs that ended in the last ${days(c.days)}`, [{name: 'Figure', t: true}, ...all.map(([n]) => ({name: n, n: true}))],
        [['Jobs that ended', ...all.map(([, f]) => read(f))], ...rows.map(([words, key, show]) => [words, ...all.map(([, f]) => show(f[key]))])]),
      h('p', {class: 'dim'}, [c.cut && `Only the newest ${c.jobs} jobs are taken.`, c.incomplete && 'This coordinator is still fetching part of the history from the others.',
        'Compare only simulated results with each other: the simulator does not know the outages, holds, account limits or reservations that delayed jobs.', ...(c.notes ?? []).map((n) => `Note: ${clean(n)}.`)].filter(Boolean).join(' ')));
  }

  async function run() {
    if (button.disabled) return;
    button.disabled = true;
    body.replaceChildren(h('p', {}, 'Simulating…'));
    try {
      const got = await ask('/api/whatif', {policy: policy.value + (order.value ? `+${order.value}` : ''), shares: Number(shares.value), days: Number(back.value)});
      if (!gone) draw(got);
    } catch (err) {
      if (!gone) body.replaceChildren(h('p', {class: 'bad', role: 'alert'}, clean(err.message)));
    }
    button.disabled = false;
  }

  ask('/api/whatif').then((c) => { if (!gone) fields(c); }, (err) => { if (!gone) { form.replaceChildren(); say(err.message); } });
  return {leave: () => { gone = true; }};
}
