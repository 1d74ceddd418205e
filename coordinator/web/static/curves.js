// What the cards of a job showed over the last week at most, as curves.
import {call} from './api.js';
import {clean, h, mib, pct, redraw, when} from './dom.js';
import {poll} from './poll.js';

// lasts is how long the sample of a time stands for: those of before the last hour begin
// at whole five minutes.
const lasts = (t, step) => (t % 300 ? step : 300);

// line is the path of values over time; where samples lack it is broken.
function line(at, values, most, step) {
  const first = at[0], width = Math.max(step, at.at(-1) - first);
  let d = '', pen = false, before = 0;
  at.forEach((t, i) => {
    if (values[i] < 0) { pen = false; return; }
    const x = (100 * (t - first)) / width, y = 100 - (96 * Math.min(values[i], most)) / Math.max(1, most);
    d += `${pen && t - before <= 3 * lasts(before, step) ? 'L' : 'M'}${x.toFixed(2)} ${y.toFixed(2)}`;
    pen = true;
    before = t;
  });
  return d;
}

// between says from when to when, with both dates unless both are of today.
function between(from, to) {
  const today = new Date().toDateString(), dated = [from, to].some((t) => new Date(t).toDateString() !== today);
  return dated ? `${new Date(from).toLocaleString()} to ${new Date(to).toLocaleString()}` : `${when(from)} to ${when(to)}`;
}

// curve draws values; held of most, if it is known, is what the job was given of it.
function curve(name, at, values, most, say, step, held = 0) {
  const known = values.filter((v) => v >= 0);
  if (!known.some((v) => v > 0)) return null;
  let sum = 0, time = 0;
  values.forEach((v, i) => {
    const d = i + 1 < at.length ? Math.min(at[i + 1] - at[i], lasts(at[i], step)) : step;
    if (v >= 0) { sum += v * d; time += d; }
  });
  const last = known.at(-1), mean = sum / time;
  const words = `${name}: now ${say(last)}, ${say(mean)} on average, ${say(Math.max(...known))} at most, of ${say(most)}${held ? `; ${say(held)} are given to this job (dashed)` : ''}`;
  const level = 100 - (96 * Math.min(held, most)) / Math.max(1, most);
  return h('figure', {}, h('figcaption', {class: 'dim'}, words), h('svg', {class: 'curve', viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': words}, held > 0 && h('path', {class: 'held', d: `M0 ${level.toFixed(2)}L100 ${level.toFixed(2)}`}), h('path', {d: line(at, values, most, step)})));
}

// metric is what the job said of its metric over its steps; null where there is no curve.
function metric(got) {
  const steps = (got.steps ?? []).map(Number), values = (got.values ?? []).map(Number);
  if (steps.length < 2 || steps.length !== values.length) return null;
  const low = Math.min(...values), high = Math.max(...values), width = Math.max(1, steps.at(-1) - steps[0]), say = (v) => String(Number(v.toPrecision(5)));
  const d = steps.map((s, i) => `${i ? 'L' : 'M'}${((100 * (s - steps[0])) / width).toFixed(2)} ${(98 - (96 * (values[i] - low)) / (high - low || 1)).toFixed(2)}`).join('');
  const words = `${clean(got.metric)}: ${say(values.at(-1))} at step ${steps.at(-1)}, from ${say(low)} to ${say(high)} since step ${steps[0]}`;
  return h('section', {'aria-label': 'Metric'}, h('figure', {}, h('figcaption', {class: 'dim'}, words), h('svg', {class: 'curve', viewBox: '0 0 100 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': words}, h('path', {d}))));
}

// curves draws what the cards of a job showed; held is what it was given of the memory of
// the card with an index, in MiB, 0 for what is not known.
export function curves(root, id, ended, held) {
  let next = 0; // what spans hours is asked for less often
  const draw = (got) => {
    next = (got.gpus ?? []).some((g) => g.at?.length && g.at.at(-1) - g.at[0] > 3600) ? Date.now() + 55000 : 0;
    const parts = (got.gpus ?? []).filter((g) => g.at?.length).map((g) => {
      const at = g.at.map(Number), step = got.stepSeconds || 10, watts = g.powerW ?? [];
      return [h('h3', {}, `${clean(g.type)} ${g.index ?? 0} of ${clean(g.node)}, ${between(at[0] * 1000, at.at(-1) * 1000)}`),
        curve('Memory in use', at, g.usedMib.map(Number), Number(g.memMib), (v) => mib(Math.round(v)), step, held(g)), curve('Busy', at, g.utilMilli, 1000, (v) => pct(v / 1000), step),
        curve('Power', at, watts, Math.max(...watts, 1), (v) => `${Math.round(v)} W`, step)];
    });
    redraw(root, ...[metric(got)].filter(Boolean), ...(parts.length ? [h('section', {'aria-label': 'GPU measurements'}, h('h2', {}, 'GPU measurements'), h('p', {class: 'dim'}, 'Of the whole GPU, including other jobs, for at most a week: every 10 seconds in the last hour, every 5 minutes before.'), parts.flat())] : []));
  };
  return poll(10000, async () => ((ended() && root.firstChild) || Date.now() < next ? null : call('SeriesService/GetSeries', {id})), (got) => { if (got) draw(got); }, () => {});
}
