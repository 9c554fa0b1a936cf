// What the first view needs of the pieces that views are made of.
import { html } from "./lib.js";
import { Refused } from "./api.js";

/** What went wrong, in the service's words where it said any. */
export function Problem({ error, again }) {
  if (!error) return null;
  const away = !(error instanceof Refused);
  const text = away && error instanceof TypeError ? "The service does not answer." : error.message;
  return html`<div class="problem" role="alert">
    <p>${error.status === 401 ? "This key is unknown or no longer valid. " : ""}${text}</p>
    ${error.retryAfter ? html`<p>Try again in ${error.retryAfter} s.</p>` : null}
    ${error.status === 401 ? html`<p><a href="#/sign-in">Sign in again</a></p>` : null}
    ${again ? html`<button onClick=${again}>Try again</button>` : null}
  </div>`;
}

/** A bar that fills up; `value` is 0 to 1. */
export function Progress({ label, value }) {
  return html`<label class="progress">${label} <progress max="1" value=${value}></progress> <span>${Math.round(100 * value)} %</span></label>`;
}
