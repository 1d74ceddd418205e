// What a job writes, as it writes it. Escape sequences of terminals are taken out, and what
// is left of control characters is shown as signs.
import {follow} from './api.js';
import {bytes, clean, h} from './dom.js';

const mostLines = 2000, mostOfLine = 4000;
// CSI, OSC and the like with their ends, and two-character escapes.
const escapes = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)|\u001b[ -/]*[0-Z\\^-~]/g;

export function plain(line) {
  const shown = line.replace(escapes, '');
  const last = shown.replace(/\r+$/, '').split('\r').pop(); // bars that draw over themselves
  return clean(last.slice(0, mostOfLine)).replaceAll('\u2409', '\t');
}

export function log(root, job) {
  let stop = new AbortController(), lines = [], open = '', queued = false, decoder = new TextDecoder();
  const pre = h('pre', {id: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': 'Output'}), note = h('p', {class: 'dim', role: 'status'});
  const which = h('select', {id: 'which-log', onchange: () => { stop.abort(); begin(); }}, h('option', {value: ''}, 'standard output'), h('option', {value: '1'}, 'standard error'));
  root.append(h('section', {'aria-label': 'Output'}, h('h2', {}, 'Output'), h('div', {class: 'bar'}, h('label', {for: 'which-log'}, 'File', which)), pre, note));

  function draw() {
    queued = false;
    const end = pre.scrollTop + pre.clientHeight > pre.scrollHeight - 40;
    pre.textContent = [...lines, ...(open ? [plain(open)] : [])].join('\n');
    if (end) pre.scrollTop = pre.scrollHeight;
  }

  function take(data) {
    const parts = (open + decoder.decode(data, {stream: true})).split('\n');
    open = parts.pop().slice(-4 * mostOfLine);
    lines.push(...parts.map(plain));
    if (lines.length > mostLines) lines = lines.slice(-mostLines);
    if (!queued) { queued = true; setTimeout(draw, 100); }
  }

  function begin() {
    stop = new AbortController();
    lines = [];
    open = '';
    decoder = new TextDecoder();
    pre.textContent = '';
    note.textContent = 'Waiting for the node…';
    follow(`/api/log?job=${job}${which.value ? '&stderr=1' : ''}`, '', stop.signal, (name, m) => {
      if (name === 'state') note.textContent = m ?? '';
      else if (name === 'end') note.textContent = note.textContent || 'The output ends here.';
      else if (name === 'again') return false;
      else if (m.log) take(bytes(m.log.data));
      else if (m.notice) note.textContent = clean(m.notice);
      else if (m.ended) { note.textContent = 'The job has ended; this is all of it.'; return false; }
    });
  }
  begin();
  return {leave: () => stop.abort()};
}
