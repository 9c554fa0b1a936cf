// Pieces that several views are made of.
import { html, useEffect, useState } from "./lib.js";
import { Refused, key } from "./api.js";

/** What went wrong, in the service's words where it said any. */
export function Problem({ error, again }) {
  if (!error) return null;
  const away = !(error instanceof Refused);
  const text = away && error instanceof TypeError ? "The service does not answer." : error.message;
  return html`<div class="problem" role="alert">
    <p>${error.status === 401 ? "This key is not valid any more. " : ""}${text}</p>
    ${error.retryAfter ? html`<p>It says to try again in ${error.retryAfter} s.</p>` : null}
    ${error.status === 401 ? html`<p><a href="#/sign-in">Sign in again</a></p>` : null}
    ${again ? html`<button onClick=${again}>Try again</button>` : null}
  </div>`;
}

/** What `load(signal)` returns, as {value, error, loading, again}; asked for again when `on` changes. */
export function useLoaded(load, on) {
  const [state, set] = useState({ loading: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    set((before) => ({ ...before, loading: true }));
    load(stop.signal).then(
      (value) => stop.signal.aborted || set({ value, loading: false }),
      (error) => stop.signal.aborted || set({ error, loading: false }),
    );
    return () => stop.abort();
  }, [...on, turn]);
  return { ...state, again: () => setTurn((count) => count + 1) };
}

/** A button that copies a text, and says that it did. */
export function Copy({ text, label = "Copy" }) {
  const [done, set] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    set(true);
    setTimeout(() => set(false), 2000);
  };
  return html`<button class="quiet" onClick=${copy}><span aria-live="polite">${done ? "Copied" : label}</span></button>`;
}

/** A bar that fills up; `value` is 0 to 1. */
export function Progress({ label, value }) {
  return html`<label class="progress">${label} <progress max="1" value=${value}></progress> <span>${Math.round(100 * value)} %</span></label>`;
}

/** A dialog that asks before something that cannot be undone. */
export function Sure({ question, children, action, onYes, onNo }) {
  return html`<dialog ref=${(element) => element && !element.open && element.showModal()} onClose=${onNo} aria-label=${question}>
    <h2>${question}</h2>
    ${children}
    <p class="actions"><button class="danger" onClick=${onYes}>${action}</button> <button onClick=${onNo} autofocus>Leave it</button></p>
  </dialog>`;
}

/** Whether a key of a kind is in this tab. */
export function has(kind) {
  return Boolean(key(kind));
}
