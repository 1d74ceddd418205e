// What is drawn, and how figures are written. All text goes in as text: nothing that
// others chose is ever read as HTML.

export function h(tag, props, ...kids) {
  const el = tag === 'svg' || tag === 'path' ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(props || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith('on')) el.addEventListener(k.slice(2), v);
    else if (k === 'value' || k === 'checked') el[k] = v;
    else el.setAttribute(k, v === true ? '' : v);
  }
  el.append(...kids.flat(9).filter((k) => k !== null && k !== undefined && k !== false));
  return el;
}

// clean makes text of others harmless to look at: control characters and those that turn
// the direction of writing are shown as signs.
export function clean(s) {
  return String(s ?? '')
    .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
}

// bytes of the API come in base64.
export function text(b64) {
  return clean(new TextDecoder().decode(bytes(b64)));
}

export function bytes(b64) {
  const s = atob(b64 || '');
  const out = new Uint8Array(s.length);
  for (let i = 0; i < s.length; i++) out[i] = s.charCodeAt(i);
  return out;
}

export function mib(n) {
  n = Number(n || 0);
  if (n <= 0) return '–';
  return n < 1024 ? `${n} MiB` : `${(n / 1024).toFixed(n < 10240 ? 1 : 0)} GiB`;
}

export const pct = (part) => `${Math.round(100 * part)} %`;
export const milli = (m) => (Number(m || 0) < 0 ? 'unknown' : pct(Number(m || 0) / 1000));
export const cores = (m) => String(Number(m || 0) / 1000);

export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const d = Math.floor(s / 86400), two = (n) => String(n).padStart(2, '0');
  return `${d ? `${d}-` : ''}${two(Math.floor(s / 3600) % 24)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

// seconds of a Duration as JSON has it, "90s".
export const seconds = (d) => (d ? parseFloat(d) : 0);
export const time = (t) => (t ? new Date(t).getTime() : 0);

export function when(ms) {
  if (!ms) return '';
  const at = new Date(ms), day = at.toDateString() === new Date().toDateString();
  return day ? at.toLocaleTimeString() : at.toLocaleString();
}

// words makes words of a code, OUT_OF_MEMORY or GPUCount.
export const words = (code) => clean(code).replace(/_/g, ' ').replace(/([a-z])([A-Z])|([A-Z])([A-Z][a-z])/g, '$1$3 $2$4').toLowerCase().replace(/\bgpu(s?)\b/g, 'GPU$1');

// places are what the keyboard reaches below root, by what they are; of equal ones each has
// its number.
function places(root) {
  const seen = new Map(), out = [];
  for (const el of root.querySelectorAll('a[href],button,input,select,[tabindex]')) {
    const is = [el.tagName, el.id, el.getAttribute('href') ?? '', el.getAttribute('aria-label') ? el.className : el.textContent.replace(/[▲▼▸▾]/g, '').trim()].join('|'), n = seen.get(is) ?? 0;
    seen.set(is, n + 1);
    out.push([el, `${is}|${n}`]);
  }
  return out;
}

// redraw puts kids in the place of what root has. Who goes by the keyboard stays at the same
// place, or where that is gone at the one that has its number.
export function redraw(root, ...kids) {
  const at = root.contains(document.activeElement) && document.activeElement !== root ? document.activeElement : null;
  const before = at && places(root), i = at ? before.findIndex(([el]) => el === at) : -1;
  const left = at?.scrollLeft ?? 0;
  root.replaceChildren(...kids);
  if (i < 0) return;
  const after = places(root), to = after.find(([, is]) => is === before[i][1]) ?? after[Math.min(i, after.length - 1)];
  to?.[0].focus({preventScroll: true});
  if (to && left) to[0].scrollLeft = left;
}

// facts is a list of names and what is known; what is not is left out.
export function facts(...pairs) {
  const dl = h('dl');
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    const v = pairs[i + 1];
    if (v !== '' && v !== null && v !== undefined && v !== false) dl.append(h('dt', {}, pairs[i]), h('dd', {}, v));
  }
  return dl;
}

// table draws rows of cells; a column is {name, n: of figures, t: of text that others chose}.
export function table(caption, columns, rows, cls = 'rows') {
  return h('div', {class: 'wide', tabindex: '0', role: 'region', 'aria-label': caption},
    h('table', {class: cls}, h('caption', {}, caption),
      h('thead', {}, h('tr', {}, columns.map((c) => h('th', {scope: 'col', class: c.n ? 'n' : null, 'aria-sort': c.sorted || null}, c.head || c.name)))),
      h('tbody', {}, rows.map((r) => h('tr', {}, r.map((v, i) => h('td', {class: columns[i].n ? 'n' : columns[i].t ? 't' : null, 'data-label': columns[i].t ? null : columns[i].name}, v)))))));
}

export const jobLink = (id, label) => h('a', {href: `#/job/${id}`}, label ?? String(id));
