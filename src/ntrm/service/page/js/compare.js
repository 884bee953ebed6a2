// Two versions side by side or under a slider. The second viewer follows the first.

import { html } from "../vendor/preact/preact.min.js";
import { Icon } from "./ui.js";

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

const KEYS = { ArrowLeft: -0.02, ArrowRight: 0.02, PageUp: 0.2, PageDown: -0.2 };

/** The handle between the two; `share` of the width lies left of it, and `onMove(share)` is told another one. */
export function Divider({ label, share, onMove }) {
  const move = (value) => onMove(Math.max(0.02, Math.min(0.98, value)));

  function hold(event) {
    event.preventDefault();
    event.stopPropagation();
    event.currentTarget.focus();
    event.currentTarget.setPointerCapture(event.pointerId);
  }

  function drag({ currentTarget: handle, pointerId, clientX }) {
    if (!handle.hasPointerCapture(pointerId)) return;
    const box = handle.parentElement.getBoundingClientRect();
    move((clientX - box.left) / box.width);
  }

  function press(event) {
    const step = KEYS[event.key];
    if (!step) return;
    event.preventDefault();
    move(share + step);
  }

  return html`<div class="divider" role="slider" tabindex="0" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
    aria-valuenow=${Math.round(share * 100)} style=${{ left: `${share * 100}%` }} onPointerDown=${hold}
    onPointerMove=${drag} onKeyDown=${press}>
    <span class="grip"><${Icon} name="back" /><${Icon} name="next" /></span>
  </div>`;
}
