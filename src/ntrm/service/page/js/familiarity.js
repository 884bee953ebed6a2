// Whether a slide is like what the model knows: a chip for the list, a banner on the slide, and a map of where.

import { html } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { useObserved } from "./state.js";
import { Icon } from "./ui.js";

const UNFAMILIAR = "unfamiliar";
const UNLIKE = "unlike what the model knows";
const STEPS = [
  ["#d55e00", "p below 0.01: unlike the training data"],
  ["#f0e442", "p below 0.1: in between"],
  ["#56b4e9", "like the training data"],
]; // as report/familiarity_map.py draws them
const p = (value) => Number(value.toPrecision(2));

/** Whether it is open if the slide has a cancer: none was found, but some were not assessed. */
export function notAssessed(slide) {
  const looked = slide.cancers ?? [];
  return !looked.some((cancer) => cancer.present) && looked.some((cancer) => cancer.present === null);
}

/** What is unlike in short words, for lists and searches; empty where nothing is. */
export function unlikeWords(slide) {
  const { verdict, unfamiliar_pieces: pieces = [] } = slide.familiarity ?? {};
  if (verdict === UNFAMILIAR) return "Unlike what the model knows";
  return pieces.length ? `Piece${pieces.length > 1 ? "s" : ""} ${pieces.join(", ")} ${UNLIKE}` : "";
}

/** The same as a chip. */
export function UnlikeChip({ slide }) {
  const words = unlikeWords(slide);
  const why = slide.familiarity?.verdict === UNFAMILIAR ? slide.familiarity.reasons.join("; ") : words;
  return words && html`<span class="chip warn unlike" title=${why}><${Icon} name="warn" />${words}</span>`;
}

/** Why a region of cancer in an unfamiliar piece is no finding; empty for all others. */
export function regionNote(summary, region) {
  if (!(region.tissue in summary.cancers)) return "";
  const piece = summary.pieces.find((entry) => entry.number === region.piece);
  const unread = piece
    ? piece.cancers.some((cancer) => cancer.name === region.tissue && cancer.present === null)
    : summary.familiarity.verdict === UNFAMILIAR;
  return unread ? `Not assessed: ${UNLIKE}. This is the network's prediction, not a finding.` : "";
}

/** One line for the foot of the panel: how familiar the slide is, or why that is not known. */
export function familiarityLine(slide) {
  const { verdict, p_value: value, reasons = [] } = slide.familiarity ?? {};
  if (!verdict) return "";
  if (value === null) return `Familiarity: ${verdict}${reasons.length ? ` (${reasons.join("; ")})` : ""}.`;
  return `Familiarity: ${verdict} (p = ${p(value)}).`;
}

/** The slide's own banner with the reasons and, on demand, the map; nothing where nothing is unlike. */
export function UnlikeBanner({ slide, summary }) {
  const judged = summary.familiarity;
  const pieces = summary.pieces.filter((piece) => piece.familiarity.verdict === UNFAMILIAR);
  const unlike =
    judged.verdict === UNFAMILIAR
      ? [["This slide", judged]]
      : pieces.map((piece) => [`Piece ${piece.number}`, piece.familiarity]);
  if (!unlike.length) return null;
  return html`<section class="unlike-banner" aria-label="Familiarity">
    <${Icon} name="warn" />
    <div>
      ${unlike.map(
        ([what, { p_value: value, reasons }]) =>
          html`<p>
              <strong>${what} is ${UNLIKE} (p = ${p(value)}).</strong>
              <span class="of-network">${" Its cancers, clearance and depth are not assessed."}</span>
              <span class="of-corrected">${" Its cancers are assessed only where a person named them."}</span>
            </p>
            <ul>${reasons.map((reason) => html`<li>${reason}</li>`)}</ul>`,
      )}
      <p class="small">
        Look at the slide and its stain, and use a model that was trained on slides like it. The p-value measures
        similarity to the training data, not correctness.
      </p>
      ${slide.familiarity?.has_map && html`<${FamiliarityMap} slide=${slide} />`}
    </div>
  </section>`;
}

/** The map is fetched once somebody wants to see it. */
function FamiliarityMap({ slide }) {
  const map = useObserved({ isWanted: false });
  const source = api.address(slide.id, "familiarity.jpg");
  const open = (event) => {
    map.isWanted ||= event.target.open;
  };
  return html`<details onToggle=${open}>
    <summary>Show where</summary>
    <figure>
      <a href=${source} target="_blank" rel="noopener" title="Open the map">
        <img alt="The slide in grey, its windows coloured by their similarity to the training data"
          ...${map.isWanted && { src: source }} />
      </a>
      <figcaption class="small">
        ${STEPS.map(
          ([colour, words]) => html`<span><span class="dot" style=${{ background: colour }} /> ${words}</span>`,
        )}
      </figcaption>
    </figure>
  </details>`;
}
