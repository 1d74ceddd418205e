// poll asks again and again while its page is shown and seen. get() returns what to draw.
export function poll(every, get, draw, say) {
  let timer = 0, gone = false;
  const ask = async () => {
    clearTimeout(timer);
    let wait = every;
    if (!document.hidden) {
      const began = performance.now();
      try {
        const got = await get();
        if (gone) return;
        say(null);
        draw(got);
      } catch (err) {
        if (gone) return;
        say(err.message);
      }
      wait = Math.max(every, 10 * (performance.now() - began)); // a large cluster is asked less often
    }
    if (!gone) timer = setTimeout(ask, wait);
  };
  ask();
  return {ask, leave: () => { gone = true; clearTimeout(timer); }};
}
