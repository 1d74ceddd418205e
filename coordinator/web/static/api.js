// Calls of the users' API, and streams. What goes wrong is an Error with words for people.

export const session = {me: null};

async function request(path, init) {
  let r;
  try {
    r = await fetch(path, {...init, credentials: 'same-origin', cache: 'no-store'});
  } catch {
    throw Object.assign(new Error(`coordinator ${session.me?.coordinator ?? ''} does not answer`), {status: 0});
  }
  if (r.ok) return r;
  let why = r.statusText;
  try { why = (await r.json()).error; } catch { /* not ours */ }
  const err = Object.assign(new Error(why), {status: r.status});
  if (r.status === 401) dispatchEvent(new CustomEvent('out', {detail: why}));
  throw err;
}

const post = (path, body) => request(path, {method: 'POST', headers: {'Content-Type': 'application/json', 'Berth-Token': session.me?.token ?? ''}, body: JSON.stringify(body)});

// call asks the API for what `method` says, such as JobService/GetJob.
export const call = async (method, req = {}) => (await post(`/api/${method}`, req)).json();

// ask is what is not of the users' API: a look without a body, a request with one.
export const ask = async (path, body) => (await (body ? post(path, body) : request(path))).json();

export async function enter(link) { session.me = await (await post('/login', {link})).json(); }
export async function know() { session.me = await (await request('/api/me')).json(); }
export async function leave() { await post('/logout', {}); }

export function requestID() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
}

const sleep = (ms, signal) => new Promise((done) => {
  const t = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(t); done(); }, {once: true});
});

// follow reads a stream until the signal aborts, and goes on where it was after a break.
// on(name, data) gets each event, and "state" with null once it is there, or with words.
export async function follow(path, from, signal, on) {
  let last = from;
  const url = () => path + (last ? `${path.includes('?') ? '&' : '?'}from=${last}` : '');
  while (!signal.aborted) {
    let wait = 2000;
    try {
      const r = await request(url(), {signal});
      on('state', null);
      const parts = r.body.pipeThrough(new TextDecoderStream()).getReader();
      let have = '';
      for (;;) {
        const {value, done} = await parts.read();
        if (done) break;
        have += value;
        for (let end; (end = have.indexOf('\n\n')) >= 0; have = have.slice(end + 2)) {
          const ev = {name: 'message', data: ''};
          for (const line of have.slice(0, end).split('\n')) {
            if (line.startsWith('id: ')) last = line.slice(4);
            else if (line.startsWith('event: ')) ev.name = line.slice(7);
            else if (line.startsWith('data: ')) ev.data = line.slice(6);
          }
          if (!ev.data && ev.name === 'message') continue;
          if (ev.name === 'lost') on('state', JSON.parse(ev.data));
          else if (on(ev.name, ev.name === 'message' ? JSON.parse(ev.data) : ev.data) === false) return;
          if (ev.name === 'end' || ev.name === 'over') return;
        }
      }
    } catch (err) {
      if (signal.aborted) return;
      if (err.status === 401) return;
      if (err.status === 429) wait = 15000;
      on('state', err.status === undefined ? `the stream of coordinator ${session.me?.coordinator} broke off` : err.message);
    }
    await sleep(wait, signal);
  }
}
