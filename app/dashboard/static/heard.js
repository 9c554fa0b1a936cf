// What a session hears: the parts that the view of a session and that of the microphone have in common.
import { clock, html, hue, tagName } from "./lib.js";
import { Spectrogram } from "./spectrogram.js";

/** A level in dBFS with its number. */
export function Level({ label, value }) {
  const text = value === null || value === undefined ? "–" : `${value.toFixed(0)} dBFS`;
  return html`<label class="level"><span>${label}</span><meter min="-60" max="0" low="-50" value=${Math.max(-60, value ?? -60)} aria-valuetext=${text}></meter><span>${text}</span></label>`;
}

/** What is heard now, the spectrogram, and the events up to now. */
export function HeardNow({ heard, status }) {
  const { now } = heard;
  const live = status === "open";
  const list = heard.events.list.slice(-100).reverse();
  return html`<section class="card"><h2>${live ? "Now" : "Last heard"}</h2>
      ${now ? html`<p class="hint">${clock(now.start_time, 1)} to ${clock(now.end_time, 1)}</p>` : null}
      ${now
        ? html`<${Level} label="Level" value=${now.level?.rms} /><${Level} label="Peak" value=${now.level?.peak} />
            ${now.top.map((tag) => html`<label key=${tag.name} class=${`level ${tag.probability < 0.5 ? "faint" : ""}`}><span><span class=${`dot ${hue(tag.name)}`}></span>${tagName(tag.name)}</span><meter min="0" max="1" value=${tag.probability}></meter><span>${Math.round(100 * tag.probability)} %</span></label>`)}
            ${now.top.some((tag) => tag.probability >= 0.5) ? null : html`<p class="hint">Nothing is reported: no sound reaches 50 %.</p>`}`
        : html`<p class="empty" role="status">${status === "loading" ? "Loading…" : "Nothing was heard yet."}</p>`}
      ${heard.behind ? html`<p class="hint">This page is behind; levels of what comes late are not remembered.</p>` : null}
    </section>
    ${live || heard.strips.length ? html`<section class="card"><h2>Spectrogram</h2><${Spectrogram} heard=${heard} /><p class="hint">The sound that comes while this page is open: it is drawn for those who listen, and kept nowhere.</p></section>` : null}
    <section><h2>Events</h2>
      <p class="hint">${heard.windows} windows here, with ${heard.events.total} events.</p>
      ${list.length
        ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>From</th><th>To</th><th>Sound</th><th>Surest</th></tr></thead><tbody>
            ${list.map((one) => html`<tr key=${one.number}><td>${clock(one.start, 1)}</td><td>${clock(one.end, 1)}</td><td><span class=${`dot ${hue(one.tag)}`}></span>${tagName(one.tag)}</td><td>${Math.round(100 * one.confidence)} %</td></tr>`)}
          </tbody></table></div>`
        : html`<p class="empty">No events yet.</p>`}
    </section>`;
}
