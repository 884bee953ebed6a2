// Asks the server again and again: quickly while something moves, gently otherwise, never while the page is hidden.

import { useEffect, useRef } from "../vendor/preact/preact.min.js";

const QUICK = 1000;
const SLOWEST = 20000;
const GROWTH = 1.5;

/**
 * Calls `task` until `stop()`. `task` resolves to true while something is moving; each quiet or failed answer makes the
 * pause longer. Showing the page again, or `now()`, asks at once.
 */
export function poll(task) {
  let pause = QUICK;
  let timer = null;
  let wake = () => {};
  let asked = false;
  let stopped = false;

  function now() {
    pause = QUICK;
    asked = true;
    wake();
  }

  const wait = (done) => {
    wake = done;
    if (asked || stopped) done();
    else if (!document.hidden) timer = setTimeout(done, pause);
  };
  const shown = () => (document.hidden ? clearTimeout(timer) : now());

  async function run() {
    while (!stopped) {
      asked = false;
      // The task has shown what went wrong; only the pause matters here.
      const moving = await task().catch(() => false);
      pause = moving ? QUICK : Math.min(pause * GROWTH, SLOWEST);
      await new Promise(wait);
      clearTimeout(timer);
    }
  }

  document.addEventListener("visibilitychange", shown);
  window.addEventListener("online", now);
  run();
  return {
    now,
    stop() {
      stopped = true;
      clearTimeout(timer);
      wake();
      document.removeEventListener("visibilitychange", shown);
      window.removeEventListener("online", now);
    },
  };
}

/** Polls while a panel is on the page; `task` may be another function each time it is drawn. */
export function usePolling(task) {
  const latest = useRef(null);
  const polling = useRef(null);
  latest.current = task;
  useEffect(() => {
    polling.current = poll(() => latest.current());
    return () => polling.current.stop();
  }, []);
  return { now: () => polling.current?.now(), stop: () => polling.current?.stop() };
}
