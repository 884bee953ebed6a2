// The place where the slide is shown: one viewer, a second one for comparing, lines above them, and what is read off.

import { makeDivider, Twin } from "./compare.js";
import { h, iconButton, setText } from "./dom.js";
import { Drawing } from "./drawing.js";
import { magnification, scaleBar } from "./geometry.js";
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
    this.id = id;
    this.geometry = geometry;
    this.on = on;
    this.mode = "off";
    this.first = h("div.pane", { tabIndex: 0, role: "application", "aria-label": READING });
    this.second = h("div.pane.second", { hidden: true });
    this.tags = [0, 1].map(() => h("span.tag", { hidden: true }));
    this.bar = h("span.scale-line");
    this.barText = h("span");
    this.zoomText = h("span.muted");
    this.reading = h("div.readout", { "aria-hidden": "true", hidden: true });
    this.surface = iconButton("surface", "Skin surface up", () => on.up(), { "aria-pressed": "false" });
    this.panes = h("div.panes", this.first, this.second);
    this.element = h(
      "div.stage",
      this.panes,
      ...this.tags,
      this.reading,
      h("div.hud.scale", this.bar, h("span.number", this.barText, " · ", this.zoomText)),
      h(
        "div.hud.buttons",
        iconButton("plus", "Zoom in", () => this.zoom(1.6)),
        iconButton("minus", "Zoom out", () => this.zoom(1 / 1.6)),
        iconButton("fit", "Whole slide", () => this.fit()),
        this.surface,
      ),
    );
  }

  /** Opens the viewer; the element must be on the page. */
  async open() {
    this.viewer = new SlideViewer(this.first, this.id, this.geometry);
    this.drawing = new Drawing(this.viewer, this.first);
    this.watch(this.viewer, this.first);
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
      const at = event.buttons ? null : place(event);
      this.on.hover(at && inside(at) ? at : null);
    });
    pane.addEventListener("pointerleave", () => this.on.hover(null));
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
    const um = this.viewer.umPerPixel;
    const { pixels, label } = scaleBar(um, LONGEST_BAR);
    this.bar.style.width = `${pixels}px`;
    setText(this.barText, label);
    setText(this.zoomText, magnification(um));
  }

  show(parts) {
    this.reading.hidden = !parts.length;
    this.reading.replaceChildren(...parts);
  }

  /** `off`, `side` or `swipe`, with a word for each of the two. Resolves to the second viewer, or null. */
  async compare(mode, words) {
    this.tags.forEach((tag, index) => setText(tag, words[index]));
    this.divider?.setAttribute("aria-label", `Border between ${words.join(" and ")}`);
    if (mode === this.mode) return this.other ?? null;
    this.mode = mode;
    this.element.dataset.compare = mode;
    this.twin?.stop();
    this.twin = null;
    this.divider?.remove();
    this.divider = null;
    this.second.hidden = mode === "off";
    this.second.style.clipPath = "";
    this.tags.forEach((tag) => {
      tag.hidden = mode === "off";
    });
    if (mode === "off") {
      this.other?.destroy();
      this.other = null;
      this.second.replaceChildren();
      return null;
    }
    if (!this.other) {
      this.other = new SlideViewer(this.second, this.id, this.geometry);
      this.watch(this.other, this.second);
      await this.other.open();
    }
    if (this.mode !== mode) return null;
    await frame(); // both panes have their new size
    if (mode === "swipe") {
      this.divider = makeDivider(`Border between ${words.join(" and ")}`, (share) => {
        this.second.style.clipPath = `inset(0 0 0 ${share * 100}%)`;
        this.share = share;
      });
      this.panes.append(this.divider);
    }
    this.twin = new Twin(this.viewer, this.other);
    return this.other;
  }

  /** Shows whether the slide is being corrected. */
  setCorrecting(on) {
    this.element.classList.toggle("correcting", on);
    this.first.setAttribute("aria-label", on ? CORRECTING : READING);
  }

  /** The keyboard acts on the slide. */
  focus() {
    this.first.focus({ preventScroll: true });
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
    this.surface.setAttribute("aria-pressed", String(degrees !== 0));
  }

  /** Buttons and keys move the first viewer, the second follows. */
  lead() {
    if (this.twin) this.twin.leader = this.viewer;
  }

  /** What `viewBlob` needs to know. */
  figure() {
    const { width, height } = this.panes.getBoundingClientRect();
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
