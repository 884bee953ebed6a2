// Correcting: a mode in which the pointer picks parts of the slide, and the key of a tissue names them.

import { effect, untracked } from "../vendor/preact/preact.min.js";
import { Choice, strokeOf } from "./correct-choice.js";
import { CorrectionDrawings, isInside } from "./correct-drawing.js";
import { makeSteps } from "./correct-steps.js";
import { Stroke, WIDTHS } from "./correct-strokes.js";
import { lastStep, partLine, partText, refusalWords, stepWords } from "./correct-words.js";
import { CorrectionWriter } from "./correct-writer.js";
import { colourOf, titleOf } from "./palette.js";
import { Hover } from "./region.js";
import { change, isFromNothing, observe } from "./state.js";
import { say } from "./ui.js";

const SETTLES = 450; // ms until the slide stands still after a key has moved it
const UNNAMED = "#ffffff";
const SILENCE = { text: "", strong: false };

/** The mode of an open slide: its state, and what the pointer, the keys and the panel do in it. */
export class Correct {
  constructor(view) {
    const { id, store, stage, geometry } = view;
    Object.assign(this, { view, store, stage, geometry, settling: null });
    this.picking = null; // a key may be pressed before the server has said what was picked
    observe(this, {
      isOn: false,
      message: SILENCE,
      pointed: null, // the part under the pointer or the crosshair
      marked: null, // a place that the panel points at
      stepped: null, // the place that the keyboard stands at after a step; without one it is the crosshair
    });
    this.settings = observe(
      {},
      { tool: "pick", whole: false, only: false, revise: isFromNothing(), reach: 1, width: WIDTHS.first, brush: null },
    );
    this.choice = new Choice(id, store, this.settings, (error) => this.refuse(error, false));
    this.stroke = new Stroke((points) => this.takeLine(points));
    const told = { tell: (text) => this.tell(text), refused: (error) => this.refuse(error) };
    this.writer = new CorrectionWriter(store, told);
    this.drawings = new CorrectionDrawings((version) => this.writer.sweep(version));
    this.steps = makeSteps({ id, stage, geometry, store, choice: this.choice });
    const look = (place) => this.choice.look(place, this.choice.takesWhole && !this.choice.preview);
    this.hover = new Hover(look, (part) => this.point(part));
    store.onLost = () => this.tell("The server does not answer: this is sent again until it does.");
    store.onElsewhere = () => this.isOn && this.tell(this.elsewhere, true);
  }

  /** Keeps the drawing as the state says; returns how to end that. */
  follow() {
    let { version } = this.store;
    const stops = [
      effect(() => this.drawings.show(this.shapes)),
      effect(() => {
        if (this.store.version === version) return;
        version = this.store.version;
        untracked(() => this.forgetNames());
      }),
    ];
    return () => stops.forEach((stop) => stop());
  }

  stop() {
    clearTimeout(this.settling);
    this.hover.stop();
    this.choice.choose();
  }

  /** Somebody has corrected: what lies under the pointer may have another name, and other parts may follow. */
  forgetNames() {
    this.pointed = null;
    if (this.choice.name && this.choice.spreads) this.choice.ask();
  }

  /** What is drawn over the slide, the last above the others. */
  get shapes() {
    const { settings, stroke, choice, pointed, stepped } = this;
    const line = { kind: settings.tool, points: stroke.points, pixels: settings.width / this.geometry.mpp };
    const points = [choice.shape?.side, this.marked, stepped?.place].filter(Boolean);
    return [
      ...this.writer.ghosts,
      ...choice.shapes(),
      ...(pointed && settings.tool === "pick" ? [{ kind: "hover", rings: pointed.outline }] : []),
      ...(stroke.isEmpty ? [] : [strokeOf(line, settings.brush ? colourOf(settings.brush) : UNNAMED)]),
      ...(stepped?.outline.length ? [{ kind: "hover", rings: stepped.outline }] : []),
      ...points.map((point) => ({ kind: "mark", point })),
    ];
  }

  /** Says something beside what is chosen, and to a screen reader. */
  tell(text, strong = false) {
    this.message = { text, strong };
    say(text);
  }

  /** The message has been read; `aloud` is for screen readers alone. */
  hush(aloud = "") {
    this.message = SILENCE;
    if (aloud) say(aloud);
  }

  refuse(error, writing = true) {
    if (error.name !== "AbortError") this.tell(refusalWords(error, this.store, writing), true);
  }

  get elsewhere() {
    const step = this.store.document.steps.at(-1);
    if (!step) return "The corrections were removed elsewhere.";
    return `Corrected elsewhere: step ${step.number}, ${stepWords(step)}.`;
  }

  toggle(on = !this.isOn) {
    const { view, store, stage } = this;
    if (on === this.isOn) return;
    this.isOn = on;
    stage.isCorrecting = on;
    this.hover.stop();
    if (on) {
      view.set({ layer: "corrected" });
      view.showTab("correct");
      stage.focus();
      say("Correct. Pick a part of the slide, then press the key of the right tissue.");
      this.makeGraph();
    } else {
      this.stroke.drop();
      this.choice.choose();
      this.hush();
      if (!isFromNothing() && !store.active.length && view.layer === "corrected") view.set({ layer: "tissue" });
      say("Correcting has ended.");
    }
  }

  makeGraph() {
    this.store.makeGraph().catch((error) => this.refuse(error, false));
  }

  set(changes) {
    const { settings, choice } = this;
    const isOther = "tool" in changes && changes.tool !== settings.tool;
    change(settings, { ...changes, ...(isOther ? { brush: null } : {}) });
    if (isOther || "whole" in changes) {
      this.stroke.drop();
      choice.choose();
      change(this, { pointed: null, stepped: null });
    }
    if ("reach" in changes || "revise" in changes) choice.askSoon();
    if ("only" in changes && choice.name) choice.call(choice.name);
    this.hush();
  }

  /** The pointer is here, or null: it has left. */
  move(place) {
    if (place && this.stage.drawing.cross) this.stage.drawing.set({ cross: false });
    if (!(place && this.pointed && isInside(this.pointed.outline, place))) this.hover.move(place);
  }

  /** The part under the pointer, read out beside it. */
  point(part) {
    this.pointed = part;
    this.stage.reading = part ? partLine(part, this.choice.reason(part.outline)) : null;
    if (part && this.stage.drawing.cross) say(partText(part));
  }

  /** What lies under the crosshair, once the slide stands still. */
  look() {
    this.stage.drawing.set({ cross: true });
    this.stepped = null;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.hover.move(this.stage.middle), SETTLES);
  }

  /** Where Space and Enter act. */
  get place() {
    return this.stepped?.place ?? this.stage.middle;
  }

  async click(place, more = false) {
    const { settings, choice, stroke } = this;
    this.stage.focus();
    this.hush();
    this.stepped = null;
    if (settings.tool === "pick") await this.next(() => this.pick(place, more));
    else if (choice.shape?.kind === "divide") {
      choice.shape = { ...choice.shape, side: place };
      this.tell("This side gets the name: press the key of the right tissue.");
    } else {
      stroke.add(place);
      if (settings.tool === "brush") stroke.finish();
    }
  }

  /** Does `work` after all that is being picked. */
  next(work) {
    const before = this.picking;
    this.picking = (async () => {
      await before;
      try {
        await work();
      } catch (error) {
        this.refuse(error, false);
      }
    })();
    return this.picking;
  }

  async pick(place, more) {
    const { choice, pointed } = this;
    if (!more && choice.preview && (await choice.toggle(place))) return;
    const known = pointed?.whole === choice.takesWhole && !choice.preview && isInside(pointed.outline, place);
    const part = known ? pointed : await choice.look(place);
    choice.pick(part, more);
    say(partText(part));
  }

  /** To the next region or the one before; while something would follow, from one such part to the next. */
  step(by, more) {
    return this.go(() => this.steps.step(by, more));
  }

  /** To what touches what is picked, in a direction of the screen. */
  stepBeside(x, y) {
    return this.go(() => this.steps.beside(x, y));
  }

  /** Goes where `steps` says, and picks what is there. */
  go(asked) {
    if (this.settings.tool !== "pick") this.set({ tool: "pick" });
    return this.next(async () => {
      const found = await asked();
      change(this, { stepped: found.place ? found : null, pointed: null });
      if (found.place) {
        this.stage.drawing.set({ cross: false });
        this.stage.reveal(found.box, found.place);
      }
      this.tell(found.says);
    });
  }

  /** Takes the part at a place out of those that follow, or in again. */
  exclude(place) {
    return this.next(async () => {
      const before = this.choice.out.length;
      if (!(await this.choice.toggle(place))) this.tell("Nothing follows here.");
      else this.tell(this.choice.out.length > before ? "Excluded." : "Included again.");
    });
  }

  /** A stroke, a lasso or a dividing line is finished. */
  takeLine(points) {
    const { settings, choice } = this;
    const hint = choice.takeLine(settings.tool, points, settings.width, settings.width / this.geometry.mpp);
    if (choice.shape && settings.brush) this.name(settings.brush);
    else this.tell(hint);
  }

  async name(tissue) {
    const { settings, choice } = this;
    await this.picking;
    if (settings.tool === "brush") settings.brush = tissue;
    if (choice.isEmpty && this.pointed && settings.tool === "pick") choice.pick(this.pointed);
    if (choice.isEmpty && settings.tool !== "brush") this.tell("Pick a part first.");
    else if (choice.isEmpty) this.hush(`The brush paints ${titleOf(tissue)}.`);
    else if (choice.shape?.kind === "divide" && !choice.shape.side)
      this.tell("Click the side that gets the name first.");
    else {
      this.hush();
      choice.call(tissue);
      if (!choice.spreads) this.accept();
    }
  }

  /** The same from the panel, where a button has the focus: Enter is to accept next. */
  nameFromList(tissue) {
    this.stage.focus();
    this.name(tissue);
  }

  async accept() {
    const { choice } = this;
    await this.picking;
    if (!choice.name) return;
    change(this, { pointed: null, stepped: null });
    if (!choice.isSeen) {
      choice.ask();
      this.tell("What would follow is being computed. Accept it once it is shown.");
    } else if (await choice.write(this.writer)) this.tell(`Written. ${lastStep(this.store)}.`);
  }

  /** One thing less; whether there was one. */
  drop() {
    const { settings, choice } = this;
    this.hush();
    const named = this.stroke.drop() || choice.drop();
    if (!named && choice.isEmpty && !settings.brush) return false;
    this.stepped = null;
    if (!named) {
      choice.choose();
      settings.brush = null;
    }
    say(named ? "Dropped." : "Nothing is picked.");
    return true;
  }
}
