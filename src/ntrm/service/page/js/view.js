// A finished slide: stage, panels and toolbar, and the one state they all show.

import * as api from "./api.js";
import { makeCorrect } from "./correct.js";
import { correctBindings } from "./correct-keys.js";
import { CorrectionStore } from "./correct-store.js";
import { correctedWords, resultWords } from "./correct-words.js";
import { say } from "./dom.js";
import { regionNote, unlikeBanner, unlikeWords } from "./familiarity.js";
import { save, svgBlob, viewBlob } from "./figure.js";
import { boxToSlide, geometryOf } from "./geometry.js";
import { bind, shortcuts } from "./keyboard.js";
import { makeLayers, makeLegend, PAIRS } from "./layer-panel.js";
import { makeMeasures, measureLines, uprightOf } from "./measures.js";
import { prefs } from "./prefs.js";
import { Hover, makeRegion, readingLine } from "./region.js";
import { makeRelations, MEAN } from "./relations-panel.js";
import { makeShell } from "./shell.js";
import { Stage } from "./stage.js";
import { viewBindings } from "./view-keys.js";
import { CLASSES, makePaint } from "./view-paint.js";

/** Shows a finished slide; resolves to how to leave it. */
export async function openView(root, slide, tools) {
  const { id } = slide;
  const store = new CorrectionStore(id);
  const [summary, graph, tiles] = await Promise.all([api.summary(id), api.graph(id), api.tiles(id), store.open()]);
  const geometry = geometryOf(tiles, summary);
  const view = {
    layer: store.active.length ? "corrected" : "tissue",
    version: "tissue",
    opacity: 0.5,
    hidden: new Set(),
    compare: "off",
    piece: null,
    up: false,
    lines: true,
    highlight: null,
    relation: "boundary",
    attentionLayer: MEAN,
    window: null,
    set(change) {
      Object.assign(view, change);
      apply();
    },
  };
  const pieces = summary.pieces.map((piece) => piece.number);
  const refresh = () => apply();

  const stage = new Stage(id, geometry, {
    read: (place, more) => (correct.isOn ? correct.click(place, more) : read(place)),
    hover: (place) => (correct.isOn ? correct : hover).move(place),
    up: turn,
    picks: () => correct.isOn,
    draws: () => correct.isOn && correct.settings.tool !== "pick",
    press: (place) => correct.stroke.press(place),
    drag: (place) => correct.stroke.drag(place, stage.viewer.umPerPixel / geometry.mpp),
    release: () => correct.stroke.release(),
  });
  const isCorrected = () => view.version === "corrected" && store.active.length > 0;
  /** The numbers of the version that is shown; those of the network until the corrected ones are written. */
  const shown = () => (isCorrected() && store.measured ? store.measured : { summary, graph });
  const shownVersion = () =>
    isCorrected() ? { version: store.version, isWritten: store.isMeasured } : { version: 0, isWritten: true };
  const hover = new Hover(
    (place) => api.at(id, place, shownVersion().version),
    (answer) => stage.show(readingLine(answer)),
  );
  const correct = makeCorrect({ id, stage, geometry, view, store, apply, select: (tab) => shell.select(tab) });
  const layers = makeLayers(geometry.layers, view, store);
  const legend = makeLegend(view);
  const relations = makeRelations(graph, view, (window) => {
    view.set({ window });
    stage.fitBox(boxToSlide(geometry, window), 0.6);
  });
  const measures = makeMeasures(geometry, view, (line) => {
    view.set({ lines: true });
    stage.fitBox(lineBox(line), 1.5);
  });
  const outlined = (found) => stage.drawing.set({ outline: found ? outlineOf(found) : null });
  const region = makeRegion(id, outlined, (found) => regionNote(summary, found), shownVersion);
  const shell = makeShell(slide, tools, {
    stage: stage.element,
    tabs: [
      ["tissues", "Tissues", [layers.element, legend.element]],
      ["relations", "Relations", [relations.element]],
      ["measures", "Measures", [measures.element]],
      ["region", "Region", [region.element]],
      ["correct", "Correct", [correct.element]],
    ],
    pieces,
    step,
    correct: () => correct.toggle(),
    downloads: { picture: savePicture, graph: saveGraph },
    model: summary.model,
    banner: unlikeBanner(slide, summary),
  });
  root.replaceChildren(...shell.elements);
  await stage.open();

  const paint = makePaint(view, geometry, store);

  async function apply() {
    if (view.layer === "tissue" || view.layer === "corrected") view.version = view.layer;
    const read = shown();
    layers.update();
    legend.update(amounts(read.summary, view.piece));
    relations.update(read.graph);
    measures.update(read.summary);
    region.update();
    shell.update(view, {
      cancers: Object.entries(read.summary.cancers).map(([name, found]) => ({ name, ...found })),
      words: isCorrected() ? correctedWords(store) : "",
      results: isCorrected() ? resultWords(store) : "",
      isWritten: store.isMeasured,
      isOn: correct.isOn,
    });
    correct.update();
    const marks = relations
      .windows()
      .map((window) => ({ ring: ringOf(boxToSlide(geometry, window)), chosen: sameBox(window, view.window) }))
      .sort((one, other) => one.chosen - other.chosen); // the chosen one lies above the others
    stage.drawing.set({ marks, lines: view.lines ? measureLines(read.summary, geometry, view.piece) : [] });
    const [one, other] = PAIRS[view.version].layers;
    const second = await stage.compare(view.compare, PAIRS[view.version].words);
    paint(stage.viewer, second ? one : view.layer);
    if (second) paint(second, other);
    correct.drawings.over([stage.viewer, stage.first], [second, stage.second]);
    correct.acts.writer.follow(view.layer === "corrected");
  }

  function read(place) {
    shell.select("region");
    region.show(place);
  }

  function step(by) {
    const places = [null, ...pieces];
    view.piece = places[(places.indexOf(view.piece) + by + places.length) % places.length];
    if (view.up) stage.rotateTo(uprightOf(summary, view.piece) ?? 0);
    const piece = summary.pieces.find((entry) => entry.number === view.piece);
    if (piece) stage.fitBox(boxToSlide(geometry, piece.mask_box_px));
    else stage.fit();
    say(view.piece === null ? "All pieces" : `Piece ${view.piece} of ${pieces.length}`);
    apply();
  }

  function turn() {
    const degrees = uprightOf(summary, view.piece);
    if (degrees === null) {
      say("The direction of the skin surface is not known.");
      shell.select("measures");
      return;
    }
    view.up = !view.up;
    stage.rotateTo(view.up ? degrees : 0);
    const piece =
      summary.pieces.find((entry) => entry.number === view.piece) ?? (pieces.length === 1 ? summary.pieces[0] : null);
    if (piece) stage.fitBox(boxToSlide(geometry, piece.mask_box_px));
    else stage.fit();
  }

  async function savePicture() {
    const here = stage.figure();
    const tissues = legend.names.filter(
      (name) => !view.hidden.has(name) && (amounts(shown().summary, view.piece).areas[name] ?? 0) > 0,
    );
    const { model, program, purpose } = summary;
    const names = [slide.slide_id, `${model.name} ${model.version}`, `NTRM ${program.version}`];
    const words = isCorrected() ? correctedWords(store) : "";
    const footer = [...names, words, unlikeWords(slide), purpose].filter(Boolean).join(" · ");
    save(
      await viewBlob({ ...here, legend: CLASSES.includes(view.layer) ? tissues : [], footer }),
      `${slide.slide_id}-view.png`,
    );
  }

  function saveGraph() {
    save(svgBlob(relations.figure()), `${slide.slide_id}-graph.svg`);
  }

  const unbind = bind([
    ...correctBindings(correct, stage, shell),
    ...viewBindings({ view, stage, layers, legend, region: { ...region, read }, shell, step, turn }),
    ...shortcuts("Correct", [["e", "Correct, or end it", () => correct.toggle()]]),
    ...tools.bindings,
  ]);
  store.addEventListener("change", refresh);
  prefs.addEventListener("palette", refresh);
  prefs.addEventListener("theme", refresh);
  await apply();
  return () => {
    hover.stop();
    correct.stop();
    store.removeEventListener("change", refresh);
    unbind();
    prefs.removeEventListener("palette", refresh);
    prefs.removeEventListener("theme", refresh);
    stage.destroy();
  };
}

/** Areas and shares of one piece or of the whole slide. A correction may leave nothing of a piece. */
function amounts(summary, piece) {
  const of = piece === null ? summary : summary.pieces.find((entry) => entry.number === piece);
  return { areas: of?.areas_mm2 ?? {}, shares: of?.tissue_fractions ?? {} };
}

function lineBox({ from, to }) {
  const [left, top] = [Math.min(from[0], to[0]), Math.min(from[1], to[1])];
  return { left, top, width: Math.abs(from[0] - to[0]), height: Math.abs(from[1] - to[1]) };
}

/** A region's rings; its bounds where they could not be read. */
function outlineOf({ outline, left_px: left, top_px: top, width_px: width, height_px: height }) {
  return outline ?? [ringOf({ left, top, width, height })];
}

const sameBox = (one, other) => Boolean(other) && one.top === other.top && one.left === other.left;

/** The corners of a box, one after the other. */
function ringOf({ left, top, width, height }) {
  const [right, bottom] = [left + width, top + height];
  return [
    [left, top],
    [right, top],
    [right, bottom],
    [left, bottom],
  ];
}
