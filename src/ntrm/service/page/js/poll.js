// Asks the server again and again: quickly while something moves, gently otherwise, never while the page is hidden.

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
  let running = false;
  let again = false;
  let stopped = false;

  async function ask() {
    if (running) {
      again = true;
      return;
    }
    clearTimeout(timer);
    running = true;
    again = false;
    let moving = false;
    try {
      moving = await task();
    } catch {
      moving = false; // the task has shown what went wrong; only the pause matters here
    }
    running = false;
    pause = moving ? QUICK : Math.min(pause * GROWTH, SLOWEST);
    if (stopped) return;
    if (again) ask();
    else if (!document.hidden) timer = setTimeout(ask, pause);
  }

  function now() {
    pause = QUICK;
    if (!stopped) ask();
  }

  const shown = () => (document.hidden ? clearTimeout(timer) : now());
  document.addEventListener("visibilitychange", shown);
  window.addEventListener("online", now);
  ask();
  return {
    now,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", shown);
      window.removeEventListener("online", now);
    },
  };
}
