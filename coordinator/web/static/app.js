// Opens the page: lets the browser in, shows the page that the address names, and says when
// something is lost.
import {enter, know, leave, session} from './api.js';
import {clean, h} from './dom.js';
import * as store from './store.js';
import {overview} from './overview.js';
import {jobs} from './jobs.js';
import {job} from './job.js';
import {services} from './services.js';
import {nodes} from './nodes.js';
import {accounts} from './accounts.js';
import {whatif} from './whatif.js';
import {admin} from './admin.js';

const pages = {
  overview: ['Overview', overview], jobs: ['Jobs', jobs], services: ['Services', services], nodes: ['Nodes', nodes], accounts: ['Accounts', accounts], whatif: ['What if', whatif], admin: ['Admin', admin], job: [null, job],
};
const $ = (id) => document.getElementById(id);
let page = null; // {update, leave} of what is shown
let troubles = {};

// trouble says what is wrong in the banner, null when it is right again.
function trouble(of, words) {
  if (words) troubles[of] = words; else delete troubles[of];
  const all = [...new Set(Object.values(troubles))].join('; ');
  $('banner').hidden = !all;
  if ($('banner').textContent !== all) $('banner').textContent = all;
}

function show() {
  const [name, arg] = (location.hash || '#/overview').slice(2).split('/');
  const [title, make] = pages[name] ?? pages.overview;
  page?.leave?.();
  trouble('page', null);
  for (const a of $('nav').children) {
    if (a.hash === `#/${name}` || (name === 'job' && a.hash === '#/jobs')) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  const root = h('div');
  document.title = `${title ?? `Job ${Number(arg)}`} – Berth`;
  $('main').replaceChildren(root);
  page = make(root, arg, (words) => trouble('page', words));
  page.update?.();
  $('main').focus({preventScroll: true});
  scrollTo(0, 0);
}

function out(words) {
  session.me = null;
  store.end();
  page?.leave?.();
  page = null;
  $('nav').replaceChildren();
  $('who').replaceChildren();
  trouble('jobs', null);
  trouble('page', null);
  removeEventListener('hashchange', show);
  $('main').replaceChildren(h('h1', {}, 'You are not logged in'), h('p', {id: 'why-out'}, clean(words)),
    h('p', {}, 'On a machine from which you submit jobs, run'), h('pre', {}, 'berth web'), h('p', {}, 'and open the link that it prints.'));
}

function inside() {
  const me = session.me;
  $('cluster').textContent = clean(me.clusterName || me.cluster);
  $('nav').replaceChildren(...Object.entries(pages).filter(([, [title]]) => title).map(([name, [title]]) => h('a', {href: `#/${name}`}, title)));
  $('who').replaceChildren(`${clean(me.user)}${me.admin ? ' (administrator)' : ''} at ${clean(me.coordinator)} `,
    h('button', {onclick: async () => { try { await leave(); } finally { out('You logged out.'); } }}, 'Log out'));
  addEventListener('hashchange', show);
  store.onChange(() => {
    trouble('jobs', store.state.loaded ? store.state.words && `Not live: ${store.state.words}; trying again. If coordinator ${me.coordinator} stays away, open the page of another one: berth web` : null);
    page?.update?.();
  });
  store.start();
  show();
}

// The address names the page, so that a link within it must not change it.
document.querySelector('.skip').addEventListener('click', (ev) => {
  ev.preventDefault();
  $('main').focus();
  $('main').scrollIntoView();
});

// A page that is not seen gives its streams back: browsers have six connections to one
// server over HTTP/1, those of pages that they keep to go back to included.
let hidden = 0;
function rest() {
  store.end();
  page?.leave?.();
  page = null;
}
function wake() {
  clearTimeout(hidden);
  if (!session.me || document.hidden) return;
  store.start();
  if (!page) show();
}
document.addEventListener('visibilitychange', () => {
  if (document.hidden) hidden = setTimeout(rest, 20000);
  else wake();
});
addEventListener('pagehide', rest);
addEventListener('pageshow', (ev) => { if (ev.persisted) wake(); });

addEventListener('out', (ev) => out(ev.detail));

const link = /^#in=(.+)$/.exec(location.hash)?.[1];
try {
  if (link) {
    history.replaceState(null, '', '/'); // the link is used up
    await enter(link);
  } else await know();
  inside();
} catch (err) {
  if (err.status !== 401) out(err.message);
}
