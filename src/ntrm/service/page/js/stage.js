// The place where the slide is shown: one viewer, a second one for comparing, lines above them, and what is read off.

import { html } from "../vendor/preact/preact.min.js";
import { Divider, Twin } from "./compare.js";
import { Drawing } from "./drawing.js";
import { magnification, scaleBar } from "./geometry.js";
import { change, observe } from "./state.js";
import { classNames, IconButton } from "./ui.js";
import { SlideViewer } from "./viewer.js";

const LONGEST_BAR = 140;
const READING = "Slide. Arrow keys move, plus and minus zoom, Enter shows the region in the middle.";
const CORRECTING =
  "Slide, to be corrected. n goes to the next region, arrow keys move, Enter picks the middle, a tissue's key names it.";

/**
 * `on` has read(place, more), hover(place or null) and up(), called as the pointer and the buttons say; `more` is true
 * with Shift. Where draws() is true, a drag draws instead of moving the slide: press(place), drag(place), release().
 */
export class Stage {
  constructor(id, geometry, on) {
    Object.assign(this, { id, geometry, on, first: { current: null }, second: { current: null } });
    observe(this, {
      mode: "off",
      words: ["", ""],
      share: 0.5, // of the width that lies left of the divider
      scale: null,
      reading: null, // what lies under the pointer
      pointer: null, // where that is, in pixels of the slide
      isCorrecting: false,
      isTurned: false,
    });
  }

  /** Opens the viewer; the element must be on the page. */
  async open() {
    this.viewer = new SlideViewer(this.first.current, this.id, this.geometry);
    this.drawing = new Drawing(this.viewer, this.first.current);
    this.watch(this.viewer, this.first.current);
    await this.viewer.open();
    this.viewer.osd.addHandler("update-viewport", () => this.measure());
    this.measure();
  }

  watch(viewer, pane) {
    const place = (event) => {
      const box = pane.getBoundingClientRect();
      return viewer.toSlide([event.clientX - box.left, event.clientY - box.top]);
    };
    const inside = ([x, y]) => x >= 0 && y >= 0 && x < this.geometry.width && y < this.geometry.height;
    pane.addEventListener("pointermove", (event) => {
      const at = place(event);
      this.pointer = inside(at) ? at : null;
      this.on.hover(event.buttons ? null : this.pointer);
    });
    pane.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.on.hover(null);
    });
    viewer.osd.addHandler("canvas-click", (event) => {
      if (event.quick) this.on.read(place(event.originalEvent), event.originalEvent.shiftKey);
    });
    viewer.osd.addHandler("canvas-double-click", (event) => {
      event.preventDefaultAction = this.on.picks();
    });
    this.watchDrags(viewer, place);
    // A crosshair says which place the keyboard reads.
    pane.addEventListener("focus", () => this.drawing.set({ cross: pane.matches(":focus-visible") }));
    pane.addEventListener("blur", () => this.drawing.set({ cross: false }));
  }

  watchDrags(viewer, place) {
    viewer.osd.addHandler("canvas-press", (event) => {
      if (this.on.draws()) this.on.press(place(event.originalEvent));
    });
    viewer.osd.addHandler("canvas-drag", (event) => {
      if (!this.on.draws()) return;
      event.preventDefaultAction = true;
      this.on.drag(place(event.originalEvent));
    });
    viewer.osd.addHandler("canvas-drag-end", (event) => {
      if (!this.on.draws()) return;
      event.preventDefaultAction = true;
      this.on.release();
    });
  }

  measure() {
    const { umPerPixel } = this.viewer;
    if (this.scale?.umPerPixel === umPerPixel) return;
    this.scale = { umPerPixel, zoom: magnification(umPerPixel), ...scaleBar(umPerPixel, LONGEST_BAR) };
  }

  /** `off`, `side` or `swipe`, with a word for each of the two. Resolves to the second viewer, or null. */
  async compare(mode, words) {
    this.words = words;
    if (mode === this.mode) return this.other ?? null;
    change(this, { mode, share: 0.5 });
    this.twin?.stop();
    this.twin = null;
    if (mode === "off") {
      this.other?.destroy();
      this.other = null;
      this.second.current.replaceChildren();
      return null;
    }
    await frame(); // both panes have their new size
    if (this.mode !== mode) return null;
    if (!this.other) {
      this.other = new SlideViewer(this.second.current, this.id, this.geometry);
      this.watch(this.other, this.second.current);
      await this.other.open();
    }
    if (this.mode !== mode) return null;
    this.twin = new Twin(this.viewer, this.other);
    return this.other;
  }

  /** The keyboard acts on the slide. */
  focus() {
    this.first.current.focus({ preventScroll: true });
  }

  /** The place under the crosshair. */
  get middle() {
    return this.viewer.toSlide(this.viewer.middle);
  }

  zoom(factor) {
    this.lead();
    this.viewer.zoomBy(factor);
  }

  pan(x, y) {
    this.lead();
    this.viewer.panBy(x, y);
  }

  fit() {
    this.lead();
    this.viewer.fitBox({ left: 0, top: 0, width: this.geometry.width, height: this.geometry.height }, 0.01);
  }

  fitBox(box, room) {
    this.lead();
    this.viewer.fitBox(box, room);
  }

  /** Moves so that a box is seen, or at least a place in it. */
  reveal(box, place) {
    this.lead();
    this.viewer.reveal(box, place);
  }

  rotateTo(degrees) {
    this.lead();
    this.viewer.rotateTo(degrees);
    this.isTurned = degrees !== 0;
  }

  /** Buttons and keys move the first viewer, the second follows. */
  lead() {
    if (this.twin) this.twin.leader = this.viewer;
  }

  /** What `viewBlob` needs to know. */
  figure() {
    const { width, height } = this.first.current.parentElement.getBoundingClientRect();
    const panes = [{ viewer: this.viewer, left: 0, width: this.mode === "side" ? width / 2 : width }];
    if (this.mode === "side") panes.push({ viewer: this.other, left: width / 2, width: width / 2 });
    if (this.mode === "swipe") panes.push({ viewer: this.other, left: 0, width, clip: this.share * width });
    return { panes, drawing: this.drawing, width, height };
  }

  destroy() {
    this.twin?.stop();
    this.viewer?.destroy();
    this.other?.destroy();
  }
}

const frame = () =>
  new Promise((resolve) => {
    requestAnimationFrame(() => requestAnimationFrame(resolve));
  });

/** The stage on the page; the viewers fill its panes. */
export function StageView({ stage }) {
  const { mode, words, share, reading, isCorrecting } = stage;
  const clip = mode === "swipe" ? `inset(0 0 0 ${share * 100}%)` : "";
  const move = (left) => change(stage, { share: left });
  return html`<div class=${classNames("stage", { correcting: isCorrecting })} data-compare=${mode}>
    <div class="panes">
      <div class="pane" tabindex="0" role="application" aria-label=${isCorrecting ? CORRECTING : READING}
        ref=${stage.first} />
      <div class="pane second" hidden=${mode === "off"} style=${{ clipPath: clip }} ref=${stage.second} />
      ${mode === "swipe" &&
        html`<${Divider} label=${`Border between ${words.join(" and ")}`} share=${share} onMove=${move} />`}
    </div>
    ${words.map((word, index) => html`<span key=${index} class="tag" hidden=${mode === "off"}>${word}</span>`)}
    <div class="readout" aria-hidden="true" hidden=${!reading}>${reading}</div>
    <${Scale} stage=${stage} />
    <${ZoomButtons} stage=${stage} />
  </div>`;
}

const Scale = ({ stage, stage: { scale } }) =>
  html`<div class="hud scale">
    <span class="scale-line" style=${{ width: `${scale?.pixels ?? 0}px` }} />
    <span class="number">${scale?.label}${" · "}<span class="muted">${scale?.zoom}</span></span>
    <${Pointer} stage=${stage} />
  </div>`;

/** Where the pointer is on the slide, from its upper left corner. */
function Pointer({ stage: { pointer, geometry } }) {
  if (!pointer) return null;
  const [pixels, mm] = [pointer.map(Math.floor), pointer.map((value) => ((value * geometry.mpp) / 1000).toFixed(3))];
  return html`<span class="number muted" aria-hidden="true">${`${pixels.join(", ")} px · ${mm.join(", ")} mm`}</span>`;
}

const ZoomButtons = ({ stage }) =>
  html`<div class="hud buttons">
    <${IconButton} name="plus" label="Zoom in" onClick=${() => stage.zoom(1.6)} />
    <${IconButton} name="minus" label="Zoom out" onClick=${() => stage.zoom(1 / 1.6)} />
    <${IconButton} name="fit" label="Whole slide" onClick=${() => stage.fit()} />
    <${IconButton} name="surface" label="Skin surface up" aria-pressed=${stage.isTurned} onClick=${() => stage.on.up()}
    />
  </div>`;
