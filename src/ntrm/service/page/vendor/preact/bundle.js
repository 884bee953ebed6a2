// What the page uses of Preact, htm and signals; esbuild makes preact.min.js of it, as vendor.json says.
import htm from "htm";
import { h } from "preact";

export { batch, computed, effect, signal, untracked, useSignal } from "@preact/signals";
export { render } from "preact";
export { useEffect, useLayoutEffect, useRef } from "preact/hooks";
export const html = htm.bind(h);
