// Long lists, a page at a time: thousands of rows at once make a page slow for everybody.
import { html, useEffect, useState } from "./lib.js";

const PAGE = 50;

/** `children(rows)` of the page that `now`, the index of an item, is on; the reader may turn to others. */
export function Paged({ items, now, name, children }) {
  const last = Math.max(0, Math.ceil(items.length / PAGE) - 1);
  const [page, turn] = useState(0);
  const there = now < 0 ? -1 : Math.floor(now / PAGE);
  useEffect(() => { if (there >= 0) turn(there); }, [there]);
  const shown = Math.min(page, last);
  const rows = items.slice(shown * PAGE, (shown + 1) * PAGE);
  return html`${children(rows)}
    ${last
      ? html`<p class="actions" role="group" aria-label=${`Pages of ${name}`}>
          <button onClick=${() => turn(shown - 1)} disabled=${shown === 0}>Before</button>
          <span aria-live="polite">${shown * PAGE + 1} to ${shown * PAGE + rows.length} of ${items.length}</span>
          <button onClick=${() => turn(shown + 1)} disabled=${shown === last}>After</button>
        </p>`
      : null}`;
}

/** Index of the last of `items`, which are in order of `start(item)`, that has begun at a place; -1 before the first. */
export function lastBegun(items, start, at) {
  let low = 0;
  for (let high = items.length; low < high; ) {
    const middle = (low + high) >> 1;
    if (start(items[middle]) <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
