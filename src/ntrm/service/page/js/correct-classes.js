// Tissues of a folder without a model: people add them here, and give them other names and colours.

import { html, useLayoutEffect, useRef } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { page, useObserved } from "./state.js";
import { Button } from "./ui.js";

const ANY = "A free colour, unless you choose one";

/** Name and colour of a tissue, of a further one without `tissue`; Enter writes them, Escape leaves. */
export function TissueForm({ tissue, correct, close }) {
  const told = useObserved({ wrong: "", colour: null });
  const field = useRef(null);
  useLayoutEffect(() => field.current.select(), []);

  function leave() {
    close();
    correct.stage.focus();
  }

  async function submit(event) {
    event.preventDefault();
    const before = tissue?.name ?? null;
    try {
      const classes = await api.changeClass({ name: field.current.value.trim(), colour: told.colour, before });
      leave();
      correct.view.takeClasses(classes, tissue?.index).catch((error) => correct.refuse(error, false));
    } catch (error) {
      told.wrong = error.text ?? "The server does not answer.";
      // Somebody else may have renamed it.
      page.about = await api.about().catch(() => page.about);
    }
  }

  function press(event) {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    leave();
  }

  return html`<form class="tissue-form" onSubmit=${submit} onKeyDown=${press}>
    <input type="color" aria-label="Colour" title=${tissue ? "Colour" : ANY} value=${tissue?.colour ?? "#969696"}
      onInput=${({ target }) => (told.colour = target.value)} />
    <input class="field" aria-label="Name of the tissue" placeholder="Name of the tissue" value=${tissue?.name} required
      maxlength="64" autocomplete="off" spellcheck=${false} ref=${field} />
    <${Button} kind="primary small" type="submit">${tissue ? "Save" : "Add"}</${Button}>
    <${Button} kind="small quiet" onClick=${leave}>Cancel</${Button}>
    <p class="wrong" role="alert" hidden=${!told.wrong}>${told.wrong}</p>
  </form>`;
}
