// Starts the page: asks the server what it is, then shows the list or a slide as the address says.

import { effect, html, render, useEffect } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { retrySlide } from "./dialogs.js";
import { List } from "./list.js";
import { Slide } from "./slide.js";
import { page, useObserved } from "./state.js";
import { Button, Icon, Notice, say } from "./ui.js";
import { DropVeil, uploads } from "./upload.js";

const PAUSE = 4000; // ms until a server that did not answer is asked again

function App() {
  const start = useObserved({ error: null });

  async function ask() {
    start.error = null;
    try {
      page.about = await api.about();
    } catch (error) {
      start.error = error;
    }
  }

  useEffect(() => {
    ask();
  }, []);
  if (!page.about)
    return html`<main class="state" id="main">
      ${start.error ? html`<${NoAnswer} error=${start.error} again=${ask} />` : html`<p>Loading …</p>`}
    </main>`;
  const [, id] = page.hash.match(/^#\/slide\/([^/]+)$/) ?? [];
  return html`${id ? html`<${Slide} key=${id} id=${decodeURIComponent(id)} />` : html`<${List} />`}<${DropVeil} />`;
}

const NoAnswer = ({ error, again }) =>
  html`<${Notice} icon="gone" title="The server does not answer"
    words=${error.text ?? "It may have been stopped. Start “ntrm serve” again, then try once more."}>
    <${Button} kind="primary" onClick=${again}>Try again</${Button}>
  </${Notice}>`;

/** Tells above everything else that the server is gone, and asks for it until it is back. */
function watchConnection(banner) {
  let timer = null;
  const ask = () => {
    clearTimeout(timer);
    api.about().catch(() => {
      timer = setTimeout(ask, PAUSE);
    });
  };
  let wasLost = false;
  effect(() => {
    banner.hidden = !page.isLost;
    clearTimeout(timer);
    if (page.isLost) timer = setTimeout(ask, PAUSE);
    else if (wasLost) say("The server answers again.");
    wasLost = page.isLost;
  });
  render(
    html`<${Icon} name="gone" />
      <span>The server does not answer. What is shown may be old.</span>
      <${Button} kind="small" onClick=${ask}>Try now</${Button}>`,
    banner,
  );
}

/** Of several files without µm per pixel only the first is asked about; the list has a button for each. */
async function askForMpp(slide) {
  uploads.onArrival();
  if (document.querySelector("dialog[open]")) return;
  await retrySlide({ ...slide, error: { code: "mpp_missing" } }).catch((error) => say(error.text ?? error.message));
  uploads.onArrival();
}

uploads.onUnmeasured = askForMpp;
watchConnection(document.getElementById("connection"));
render(html`<${App} />`, document.getElementById("app"));
