// Two versions side by side or under a slider. The second viewer follows the first.

import { h, icon } from "./dom.js";

/** Keeps two viewers on the same place. Whoever is under the pointer leads, so that neither pulls the other back. */
export class Twin {
  constructor(first, second) {
    this.pair = [first, second];
    this.leader = first;
    this.handlers = this.pair.map((viewer) => {
      const lead = () => {
        this.leader = viewer;
      };
      const follow = () => this.copy(viewer);
      // Each viewer keeps its scale when its size changes, one after the other: only then are they made equal.
      const settle = () => requestAnimationFrame(() => this.copy(this.leader));
      viewer.osd.container.addEventListener("pointerenter", lead);
      viewer.osd.addHandler("viewport-change", follow);
      viewer.osd.addHandler("resize", settle);
      return { viewer, lead, follow, settle };
    });
    this.copy(first);
  }

  copy(from) {
    if (!from || from !== this.leader) return;
    const to = this.pair[from === this.pair[0] ? 1 : 0].osd.viewport;
    const view = from.osd.viewport;
    to.setRotation(view.getRotation(true), true);
    to.zoomTo(view.getZoom(true), null, true);
    to.panTo(view.getCenter(true), true);
  }

  stop() {
    this.leader = null;
    for (const { viewer, lead, follow, settle } of this.handlers) {
      viewer.osd.container.removeEventListener("pointerenter", lead);
      viewer.osd.removeHandler("viewport-change", follow);
      viewer.osd.removeHandler("resize", settle);
    }
  }
}

/** The handle between the two; `act(share)` with the part of the width that lies left of it. */
export function makeDivider(label, act) {
  const handle = h(
    "div.divider",
    { role: "slider", tabIndex: 0, "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" },
    h("span.grip", icon("back"), icon("next")),
  );
  let share = 0.5;
  const set = (value) => {
    share = Math.max(0.02, Math.min(0.98, value));
    handle.style.left = `${share * 100}%`;
    handle.setAttribute("aria-valuenow", Math.round(share * 100));
    act(share);
  };
  handle.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    event.stopPropagation();
    handle.focus();
    handle.setPointerCapture(event.pointerId);
  });
  handle.addEventListener("pointermove", (event) => {
    if (!handle.hasPointerCapture(event.pointerId)) return;
    const box = handle.parentElement.getBoundingClientRect();
    set((event.clientX - box.left) / box.width);
  });
  handle.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -0.02, ArrowRight: 0.02, PageUp: 0.2, PageDown: -0.2 }[event.key];
    if (!step) return;
    event.preventDefault();
    set(share + step);
  });
  set(share);
  return handle;
}
