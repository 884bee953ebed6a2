// Starts the page: asks the server what it is, then shows the list or a slide as the address says.

import * as api from "./api.js";
import { retrySlide, showHelp } from "./dialogs.js";
import { button, h, icon, iconButton, notice, say } from "./dom.js";
import { shortcuts } from "./keyboard.js";
import { showList } from "./list.js";
import { setClasses } from "./palette.js";
import { paletteName, prefs, switchPalette, switchTheme } from "./prefs.js";
import { showSlide } from "./slide.js";
import { acceptDrops, uploads } from "./upload.js";

const PURPOSE = "Research use only, not for diagnosis";
const root = document.getElementById("app");
const banner = document.getElementById("connection");
let leave = () => {};

/** The parts of the top bar that every view has. */
function makeTools(about) {
  return {
    about,
    purpose: PURPOSE,
    /** What there is to say besides the purpose, which stands in the bar. */
    get notice() {
      return (this.about.notice ?? "").replace("For research, not for diagnosis.", "").trim();
    },
    /** Asks again while the server is still getting ready. */
    async renew() {
      if (this.about.worker === "ready" && this.about.classes.length) return;
      const known = this.about.classes.length;
      this.about = await api.about();
      if (known || !this.about.classes.length) return;
      setClasses(this.about.classes);
      prefs.dispatchEvent(new Event("palette"));
    },
    brand: () =>
      h(
        "a.brand",
        { href: "#/", "aria-label": "NTRM, all slides" },
        h("img", { src: "/page/icon.svg", alt: "" }),
        "NTRM",
      ),
    back: () => h("a.icon-button.quiet", { href: "#/", title: "All slides", "aria-label": "All slides" }, icon("back")),
    buttons: () => [
      iconButton("palette", "Colours for colour-blind readers", switchPalette, {
        "data-palette": "",
        "aria-pressed": String(paletteName() === "safe"),
      }),
      iconButton("theme", "Light or dark", switchTheme),
      iconButton("help", "Keyboard shortcuts", showHelp),
    ],
    bindings: shortcuts("Page", [
      ["b", "Colour-blind-safe colours", switchPalette],
      ["x", "Light or dark", switchTheme],
      ["?", "This list", showHelp],
    ]),
  };
}

function route(tools) {
  leave();
  const [, id] = location.hash.match(/^#\/slide\/([^/]+)$/) ?? [];
  document.title = "NTRM";
  leave = id ? showSlide(root, decodeURIComponent(id), tools) : showList(root, tools);
}

function watchPalette() {
  prefs.addEventListener("palette", () => {
    document.querySelector("[data-palette]")?.setAttribute("aria-pressed", String(paletteName() === "safe"));
  });
}

function watchConnection() {
  let timer = null;
  const ask = async () => {
    try {
      await api.about();
    } catch {
      timer = setTimeout(ask, 4000);
    }
  };
  api.connection.addEventListener("lost", () => {
    banner.replaceChildren(
      icon("gone"),
      h("span", "The server does not answer. What is shown may be old."),
      button("Try now", ask, "small"),
    );
    banner.hidden = false;
    clearTimeout(timer);
    timer = setTimeout(ask, 4000);
  });
  api.connection.addEventListener("back", () => {
    clearTimeout(timer);
    banner.hidden = true;
    say("The server answers again.");
  });
}

function watchUploads() {
  const veil = h("div.drop-veil", { hidden: true }, h("div", icon("upload"), "Drop to add"));
  document.body.append(veil);
  acceptDrops(veil, (files) => {
    uploads.add(files);
    if (location.hash.startsWith("#/slide/")) location.hash = "#/";
  });
  // Of several at once only the first is asked about; the list has a button for each.
  uploads.addEventListener("unmeasured", async ({ detail }) => {
    uploads.dispatchEvent(new CustomEvent("added", { detail }));
    if (document.querySelector("dialog[open]")) return;
    await retrySlide({ ...detail, error: { code: "mpp_missing" } }).catch((error) => say(error.text ?? error.message));
    uploads.dispatchEvent(new CustomEvent("added", { detail }));
  });
}

async function start() {
  root.replaceChildren(h("main.state", { id: "main" }, h("p", "Loading …")));
  let about;
  try {
    about = await api.about();
  } catch (error) {
    const words = error.text ?? "It may have been stopped. Start “ntrm serve” again, then try once more.";
    const again = button("Try again", start, "primary");
    root.replaceChildren(h("main.state", { id: "main" }, notice("gone", "The server does not answer", words, again)));
    return;
  }
  setClasses(about.classes);
  uploads.limit = about.limits?.upload_bytes ?? Infinity;
  const tools = makeTools(about);
  window.addEventListener("hashchange", () => route(tools));
  route(tools);
}

watchConnection();
watchPalette();
watchUploads();
start();
