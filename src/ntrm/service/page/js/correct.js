// Correcting: a mode in which the pointer picks parts of the slide, and the key of a tissue names them.

import { Choice, strokeOf } from "./correct-choice.js";
import { CorrectionDrawings, isInside } from "./correct-drawing.js";
import { makeCorrectPanel } from "./correct-panel.js";
import { makeSteps } from "./correct-steps.js";
import { Stroke, WIDTHS } from "./correct-strokes.js";
import { lastStep, partLine, partText, refusalWords, stepWords } from "./correct-words.js";
import { CorrectionWriter } from "./correct-writer.js";
import { say } from "./dom.js";
import { colourOf, titleOf } from "./palette.js";
import { Hover } from "./region.js";

const SETTLES = 450; // ms until the slide stands still after a key has moved it
const UNNAMED = "#ffffff";

/** The mode, its panel and its drawing; `apply()` draws the whole view again, `select(tab)` opens a panel. */
export function makeCorrect({ id, stage, geometry, view, store, apply, select }) {
  const settings = { tool: "pick", whole: false, only: false, reach: 1, width: WIDTHS.first, brush: null };
  let isOn = false;
  let pointed = null; // the part under the pointer or the crosshair
  let marked = null;
  let message = { text: "", strong: false };
  let settling = null;
  let stepped = null; // the place that the keyboard stands at after a step; without one it is the crosshair
  let picking = null; // a key may be pressed before the server has said what was picked

  const choice = new Choice(id, store, settings, update, (error) => refused(error, false));
  const stroke = new Stroke(finished, paint);
  const writer = new CorrectionWriter(store, { tell, refused, changed: paint });
  const drawings = new CorrectionDrawings((version) => writer.sweep(version));
  const steps = makeSteps({ id, stage, geometry, store, choice });
  const hover = new Hover((place) => choice.look(place, choice.takesWhole && !choice.preview), point);
  const acts = { name, nameFromList, accept, drop, set, mark, toggleAt, toggle, makeGraph, writer };
  const panel = makeCorrectPanel({ settings, choice, store, acts });

  function update() {
    paint();
    panel.update(message, isOn);
  }

  function paint() {
    const line = { kind: settings.tool, points: stroke.points, pixels: settings.width / geometry.mpp };
    const shapes = [
      ...writer.ghosts,
      ...choice.shapes(),
      ...(pointed && settings.tool === "pick" ? [{ kind: "hover", rings: pointed.outline }] : []),
      ...(stroke.isEmpty ? [] : [strokeOf(line, settings.brush ? colourOf(settings.brush) : UNNAMED)]),
      ...(choice.shape?.side ? [{ kind: "mark", point: choice.shape.side }] : []),
      ...(stepped?.outline.length ? [{ kind: "hover", rings: stepped.outline }] : []),
      ...[marked, stepped?.place].filter(Boolean).map((point) => ({ kind: "mark", point })),
    ];
    drawings.show(shapes);
  }

  /** The message has been read; `aloud` is for screen readers alone. */
  function hush(aloud = "") {
    message = { text: "", strong: false };
    if (aloud) say(aloud);
  }

  function tell(text, strong = false) {
    message = { text, strong };
    say(text);
    update();
  }

  function refused(error, writing = true) {
    if (error.name === "AbortError") return;
    tell(refusalWords(error, store, writing), true);
  }

  /** The part under the pointer, read out beside it. */
  function point(part) {
    pointed = part;
    stage.show(part ? partLine(part, choice.reason(part.outline)) : []);
    if (part && stage.drawing.cross) say(partText(part));
    paint();
  }

  function toggle(on = !isOn) {
    if (on === isOn) return;
    isOn = on;
    stage.setCorrecting(on);
    hover.stop();
    if (on) {
      view.layer = "corrected";
      select("correct");
      stage.focus();
      say("Correct. Pick a part of the slide, then press the key of the right tissue.");
      makeGraph();
    } else {
      stroke.drop();
      choice.clear();
      hush();
      if (!store.active.length && view.layer === "corrected") view.layer = "tissue";
      say("Correcting has ended.");
    }
    apply();
  }

  function makeGraph() {
    store.makeGraph().catch((error) => refused(error, false));
  }

  async function click(place, more = false) {
    stage.focus();
    hush();
    stepped = null;
    if (settings.tool === "pick") await next(() => pick(place, more));
    else if (choice.shape?.kind === "divide") {
      choice.shape.side = place;
      tell("This side gets the name: press the key of the right tissue.");
    } else {
      stroke.add(place);
      if (settings.tool === "brush") stroke.finish();
    }
  }

  /** Does `work` after all that is being picked. */
  function next(work) {
    const before = picking;
    picking = (async () => {
      await before;
      try {
        await work();
      } catch (error) {
        refused(error, false);
      }
      update();
    })();
    return picking;
  }

  async function pick(place, more) {
    if (!more && choice.preview && (await choice.toggle(place))) return;
    const known = pointed?.whole === choice.takesWhole && !choice.preview && isInside(pointed.outline, place);
    const part = known ? pointed : await choice.look(place);
    choice.pick(part, more);
    say(partText(part));
  }

  /** Goes where `steps` says, and picks what is there. */
  function go(asked) {
    if (settings.tool !== "pick") set({ tool: "pick" });
    return next(async () => {
      const found = await asked();
      stepped = found.place ? found : null;
      pointed = null;
      if (stepped) {
        stage.drawing.set({ cross: false });
        stage.reveal(stepped.box, stepped.place);
      }
      tell(found.says);
    });
  }

  function toggleAt(place) {
    return next(async () => {
      const before = choice.out.length;
      if (!(await choice.toggle(place))) tell("Nothing follows here.");
      else tell(choice.out.length > before ? "Excluded." : "Included again.");
    });
  }

  function finished(points) {
    const hint = choice.takeLine(settings.tool, points, settings.width, settings.width / geometry.mpp);
    if (choice.shape && settings.brush) name(settings.brush);
    else tell(hint);
  }

  async function name(tissue) {
    await picking;
    if (settings.tool === "brush") settings.brush = tissue;
    if (choice.isEmpty && pointed && settings.tool === "pick") choice.pick(pointed);
    if (choice.isEmpty && settings.tool !== "brush") tell("Pick a part first.");
    else if (choice.isEmpty) hush(`The brush paints ${titleOf(tissue)}.`);
    else if (choice.shape?.kind === "divide" && !choice.shape.side) tell("Click the side that gets the name first.");
    else {
      hush();
      choice.call(tissue);
      if (!choice.spreads) accept();
    }
    update();
  }

  /** The same from the panel, where a button has the focus: Enter is to accept next. */
  function nameFromList(tissue) {
    stage.focus();
    name(tissue);
  }

  async function accept() {
    await picking;
    if (!choice.name) return;
    pointed = null;
    stepped = null;
    if (!choice.isSeen) {
      choice.ask();
      tell("What would follow is being computed. Accept it once it is shown.");
    } else if (await choice.write(writer)) tell(`Written. ${lastStep(store)}.`);
    update();
  }

  function set(change) {
    const tool = change.tool && change.tool !== settings.tool;
    Object.assign(settings, change, tool ? { brush: null } : {});
    if (tool || "whole" in change) {
      stroke.drop();
      choice.clear();
      pointed = null;
      stepped = null;
    }
    if ("reach" in change) choice.askSoon();
    if ("only" in change && choice.name) choice.call(choice.name);
    hush();
    update();
  }

  function mark(place) {
    marked = place;
    paint();
  }

  /** One thing less; whether there was one. */
  function drop() {
    hush();
    const named = stroke.drop() || choice.drop();
    if (!named && choice.isEmpty && !settings.brush) return false;
    stepped = null;
    if (!named) {
      choice.clear();
      settings.brush = null;
    }
    say(named ? "Dropped." : "Nothing is picked.");
    update();
    return true;
  }

  /** What lies under the crosshair, once the slide stands still. */
  function look() {
    stage.drawing.set({ cross: true });
    stepped = null;
    clearTimeout(settling);
    settling = setTimeout(() => hover.move(stage.middle), SETTLES);
  }

  store.addEventListener("lost", () => tell("The server does not answer: this is sent again until it does."));

  let seen = store.version;
  store.addEventListener("change", ({ elsewhere }) => {
    if (store.version === seen) return;
    seen = store.version;
    pointed = null; // it may have another name now
    if (choice.name && choice.spreads) choice.ask();
    if (!elsewhere || !isOn) return;
    const step = store.document.steps.at(-1);
    const done = step ? `Corrected elsewhere: step ${step.number}, ${stepWords(step)}.` : "";
    tell(done || "The corrections were removed elsewhere.", true);
  });

  return {
    element: panel.element,
    settings,
    choice,
    stroke,
    acts,
    click,
    look,
    /** To the next region or the one before; while something would follow, from one such part to the next. */
    step: (by, more) => go(() => steps.step(by, more)),
    /** To what touches what is picked, in a direction of the screen. */
    stepBeside: (x, y) => go(() => steps.beside(x, y)),
    toggle,
    update,
    get hasStepped() {
      return stepped !== null;
    },
    /** Where Space and Enter act. */
    get place() {
      return stepped?.place ?? stage.middle;
    },
    get isOn() {
      return isOn;
    },
    /** The pointer is here, or null: it has left. */
    move(place) {
      if (place && stage.drawing.cross) stage.drawing.set({ cross: false });
      if (!(place && pointed && isInside(pointed.outline, place))) hover.move(place);
    },
    drawings,
    stop() {
      clearTimeout(settling);
      hover.stop();
      choice.clear();
      store.stop();
    },
  };
}
