// A finished slide that is open: what was read of it, its state, and what can be done with it.

import { batch, effect, untracked } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { Correct } from "./correct.js";
import { CorrectionStore } from "./correct-store.js";
import { boxToSlide, geometryOf, ringOf } from "./geometry.js";
import { pairOf, PAIRS } from "./layer-panel.js";
import { measureLines, uprightOf } from "./measures.js";
import { tissues, unnamed } from "./palette.js";
import { followVersion, Hover, outlineOf, readingLine, readRegion } from "./region.js";
import { windowsShown } from "./relations.js";
import { change, isFromNothing, observe, page, VIEW } from "./state.js";
import { Stage } from "./stage.js";
import { say } from "./ui.js";
import { paintOf, show } from "./view-paint.js";

/** Reads all that a slide's view needs. */
export async function openView(slide) {
  const { id } = slide;
  const store = new CorrectionStore(id);
  try {
    const [summary, graph, tiles] = await Promise.all([api.summary(id), api.graph(id), api.tiles(id), store.open()]);
    return new View(slide, { summary, graph, store, geometry: geometryOf(tiles, summary) });
  } catch (error) {
    store.stop();
    throw error;
  }
}

/** `summary` and `graph` are the network's own; `readings` those of the version that is shown. */
class View {
  constructor(slide, { summary, graph, store, geometry }) {
    Object.assign(this, { id: slide.id, slide, summary, graph, store, geometry });
    Object.assign(this, { asked: null, isClosed: false, effects: [] });
    observe(this, VIEW);
    observe(geometry, { revision: geometry.revision }); // another one once a tissue has another name or colour
    this.hidden = new Set([unnamed()].filter(Boolean));
    if (isFromNothing() || store.active.length) this.set({ layer: "corrected" });
    if (isFromNothing() && !store.active.length) this.tab = "correct";
    this.pieces = summary.pieces.map((piece) => piece.number);
    this.stage = new Stage(slide.id, geometry, this.pointer());
    this.hover = new Hover(
      (place) => api.at(slide.id, place, this.shownVersion.version),
      (answer) => change(this.stage, { reading: readingLine(answer) }),
    );
    this.correct = new Correct(this);
  }

  /** What the pointer does on the stage. */
  pointer() {
    const draws = () => this.correct.isOn && this.correct.settings.tool !== "pick";
    return {
      read: (place, more) => (this.correct.isOn ? this.correct.click(place, more) : this.read(place)),
      hover: (place) => (this.correct.isOn ? this.correct : this.hover).move(place),
      up: () => this.turn(),
      picks: () => this.correct.isOn,
      draws,
      press: (place) => this.correct.stroke.press(place),
      drag: (place) => this.correct.stroke.drag(place, this.stage.viewer.umPerPixel / this.geometry.mpp),
      release: () => this.correct.stroke.release(),
    };
  }

  /** Several changes that are seen as one. */
  set(changes) {
    batch(() => {
      Object.assign(this, changes);
      if (this.layer in PAIRS) this.version = this.layer;
    });
  }

  /** Takes the classes as they are now; the one with this index may have been renamed. */
  async takeClasses(classes, index) {
    const before = tissues().find((tissue) => tissue.index === index)?.name;
    const renamed = (name) => (name && name === before ? classes[index].name : name);
    const { choice, settings } = this.correct;
    batch(() => {
      page.about = { ...page.about, classes };
      this.set({ hidden: new Set([...this.hidden].map(renamed)), highlight: null });
      change(settings, { brush: renamed(settings.brush) });
    });
    await this.store.refresh();
    this.geometry.revision = (await api.tiles(this.id)).revision;
    if (choice.name) choice.call(renamed(choice.name));
  }

  get isCorrected() {
    return this.version === "corrected" && this.store.active.length > 0;
  }

  /** The numbers of the version that is shown; those of the network until the corrected ones are written. */
  get readings() {
    return (this.isCorrected && this.store.measured) || { summary: this.summary, graph: this.graph };
  }

  /** Which corrections are shown, 0 for none of them, and whether their numbers are written. */
  get shownVersion() {
    const { isCorrected, store } = this;
    return isCorrected ? { version: store.version, isWritten: store.isMeasured } : { version: 0, isWritten: true };
  }

  /** Opens the stage, which must be on the page, and keeps it as the state says. */
  async open() {
    await this.stage.open();
    if (this.isClosed) return;
    this.effects = [
      effect(() => this.paint()),
      effect(() => this.draw()),
      effect(() => followVersion(this)),
      this.correct.follow(),
    ];
  }

  close() {
    this.isClosed = true;
    this.effects.forEach((stop) => stop());
    this.hover.stop();
    this.correct.stop();
    this.store.stop();
    this.stage.destroy();
  }

  /** Which tiles lie over the slide, in one viewer or in both. */
  paint() {
    const { compare, version, layer } = this;
    const { layers, words } = pairOf(version);
    const [alone, ...both] = [layer, ...layers].map((each) => paintOf(this, each));
    this.plan = { alone, both, isCorrected: layer === "corrected" };
    untracked(() => this.carryOut(compare, words));
  }

  /** While a second viewer opens, the plan may have become another one. */
  async carryOut(compare, words) {
    const { stage, correct } = this;
    const second = await stage.compare(compare, words);
    const { alone, both, isCorrected } = this.plan;
    show(stage.viewer, second ? both[0] : alone);
    if (second) show(second, both[1]);
    correct.drawings.over([stage.viewer, stage.first.current], [second, stage.second.current]);
    correct.writer.follow(isCorrected);
  }

  /** Lines, outlines and windows over the slide. */
  draw() {
    const { window, geometry } = this;
    const isChosen = ({ top, left }) => Boolean(window) && top === window.top && left === window.left;
    const marks = windowsShown(this)
      .map((each) => ({ ring: ringOf(boxToSlide(geometry, each)), chosen: isChosen(each) }))
      .sort((one, other) => one.chosen - other.chosen); // the chosen one lies above the others
    const lines = this.lines ? measureLines(this.readings.summary, geometry, this.piece) : [];
    this.stage.drawing.set({ marks, lines, outline: outlineOf(this) });
  }

  /** Opens a panel; the focus goes there if that is wanted, and never stays on a tab that is not shown. */
  showTab(tab, wanted = false) {
    const focus = wanted || document.activeElement?.getAttribute("role") === "tab";
    this.tab = tab;
    if (focus) document.getElementById(`tab-${tab}`)?.focus();
  }

  read(place) {
    this.showTab("region");
    readRegion(this, place);
  }

  /** To the next piece or the one before; after the last one come all of them. */
  step(by) {
    const places = [null, ...this.pieces];
    this.piece = places[(places.indexOf(this.piece) + by + places.length) % places.length];
    if (this.isUp) this.stage.rotateTo(uprightOf(this.summary, this.piece) ?? 0);
    this.fitPiece(this.piece);
    say(this.piece === null ? "All pieces" : `Piece ${this.piece} of ${this.pieces.length}`);
  }

  /** The skin's surface up, or the slide as it lies. */
  turn() {
    const degrees = uprightOf(this.summary, this.piece);
    if (degrees === null) {
      say("The direction of the skin surface is not known.");
      this.showTab("measures");
      return;
    }
    this.isUp = !this.isUp;
    this.stage.rotateTo(this.isUp ? degrees : 0);
    this.fitPiece(this.piece ?? (this.pieces.length === 1 ? this.pieces[0] : null));
  }

  fitPiece(number) {
    const piece = this.summary.pieces.find((entry) => entry.number === number);
    if (piece) this.stage.fitBox(boxToSlide(this.geometry, piece.mask_box_px));
    else this.stage.fit();
  }

  /** Shows a window of the network. */
  goToWindow(window) {
    this.window = window;
    this.stage.fitBox(boxToSlide(this.geometry, window), 0.6);
  }
}
