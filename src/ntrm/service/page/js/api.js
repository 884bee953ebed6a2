// The service's HTTP interface. Everything that reaches the page from outside comes through here.

import { page } from "./state.js";

/** What the server refused, and how to fix it. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail.what || `the server answered ${status}`);
    this.status = status;
    this.detail = detail;
  }

  /** All parts as one sentence or two. */
  get text() {
    const { what, got, expected, hint } = this.detail;
    const parts = [what || this.message];
    if (got) parts.push(`got ${got}`);
    if (expected) parts.push(`expected ${expected}`);
    return parts.join("; ") + (hint ? `. ${hint[0].toUpperCase()}${hint.slice(1)}.` : ".");
  }

  /** Whether somebody else corrected the slide meanwhile. */
  get isConflict() {
    return this.detail.code === "corrected_elsewhere";
  }

  /** Whether only µm per pixel is missing. */
  get wantsMpp() {
    return this.detail.code === "mpp_missing";
  }
}

/** The server did not answer at all. */
class GoneError extends Error {}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    page.isLost = true;
    throw new GoneError("the server does not answer", { cause: error });
  }
  page.isLost = false;
  if (response.ok) return response;
  throw await refusal(response.status, () => response.json());
}

/** The error for a refused request. Being signed out leads to the locked page. */
export async function refusal(status, read) {
  if (status === 401) location.reload();
  let detail = {};
  try {
    detail = (await read()).error || {};
  } catch {
    detail = {};
  }
  return new ApiError(status, detail);
}

async function json(path, options) {
  const response = await request(path, options);
  return response.status === 204 ? null : response.json();
}

const sending = (document) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(document),
});
const of = (id, rest = "") => `/v1/slides/${encodeURIComponent(id)}${rest}`;

export const about = () => json("/v1/about");
export const changeClass = (wanted) => json("/v1/classes", sending(wanted));
export const slides = async () => (await json("/v1/slides")).slides;
export const slide = (id, signal) => json(of(id), { signal });
export const summary = (id) => json(of(id, "/summary"));
export const graph = (id) => json(of(id, "/graph"));
export const tiles = (id) => json(of(id, "/tiles"));
/** What lies at a place, and a region by its number: the network's with version 0, else those of the corrected mask. */
export const at = (id, [x, y], version) => json(of(id, `/at?x=${x}&y=${y}&v=${version}`));
export const region = (id, number, version) => json(of(id, `/regions/${number}?v=${version}`));
export const cancel = (id) => json(of(id, "/cancel"), { method: "POST" });
export const retry = (id, mpp = null) => json(of(id, "/retry"), mpp ? sending({ mpp }) : { method: "POST" });
export const remove = (id) => request(of(id), { method: "DELETE" });
export const addPath = (path, mpp) => json("/v1/slides", sending(mpp ? { path, mpp } : { path }));

const corrections = (id, rest = "") => of(id, `/corrections${rest}`);
export const corrected = (id) => json(corrections(id));
export const makeGraph = (id) => json(corrections(id, "/graph"), { method: "POST" });
export const previewName = (id, click, signal) => json(corrections(id, "/preview"), { ...sending(click), signal });
export const correct = (id, ask) => json(corrections(id), sending(ask));
export const regionsToReview = (id) => json(corrections(id, "/regions"));
export const correctedSummary = (id) => json(of(id, "/corrected/summary"));
export const correctedGraph = (id) => json(of(id, "/corrected/graph"));

/** The part or region of the mask under a place. */
export function part(id, [x, y], whole, signal) {
  const query = new URLSearchParams({ x, y, whole_region: whole });
  return json(corrections(id, `/part?${query}`), { signal });
}

/** Address of something to show or download. */
export const address = (id, what) => of(id, `/${what}`);

/** Address of a slide's small picture, another one once there are new results. */
export const picture = ({ id, finished }) => of(id, `/thumbnail.jpg?finished=${encodeURIComponent(finished ?? "")}`);

/** Address of a tile; `query` holds only what differs from the default, so that the browser's cache is hit. */
export function tileAddress(id, layer, query, level, column, row) {
  const kind = layer === "slide" ? "jpg" : "png";
  return of(id, `/tiles/${layer}/${level}/${column}_${row}.${kind}${query ? `?${query}` : ""}`);
}
