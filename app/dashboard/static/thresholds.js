// What other thresholds would report, from the scores that are stored: nothing is analysed again.
import { html, useState } from "./lib.js";
import { get } from "./api.js";
import { Dot, Problem } from "./parts.js";

const SHOWN = 20;

/** Scores of a job as {tags, rows(tag), probability(byte), hop, window}. */
export async function loadScores(job) {
  const said = await get(`/api/v1/jobs/${job}/scores`);
  const bytes = Uint8Array.from(atob(said.scores), (letter) => letter.charCodeAt(0));
  const width = said.tags.length;
  const best = said.tags.map((_, tag) => {
    let most = 0;
    for (let at = tag; at < bytes.length; at += width) most = Math.max(most, bytes[at]);
    return most;
  });
  const probability = (value) => 1 / (1 + Math.exp(-said.step * (value - said.reported_from + 0.5)));
  const order = said.tags.map((_, tag) => tag).sort((one, other) => best[other] - best[one]);
  return { tags: said.tags, bytes, width, best, order, probability, zero: said.reported_from, hop: said.hop_seconds, window: said.window_seconds };
}

/** Windows in the shape of a result, with the tags whose probability is at least their threshold (by name, else a half). */
export function windowsAt(scores, thresholds) {
  const windows = [];
  const least = scores.tags.map((tag) => thresholds[tag] ?? 0.5);
  // Most bytes are far below any threshold: the lowest one that matters is found once.
  const floor = Math.min(...least);
  const values = Array.from({ length: 256 }, (_, value) => scores.probability(value));
  const lowest = values.findIndex((value) => value >= floor);
  for (let start = 0, number = 0; start < scores.bytes.length; start += scores.width, number++) {
    const classes = [];
    for (let tag = 0; tag < scores.width; tag++) {
      const value = scores.bytes[start + tag];
      if (value >= lowest && values[value] >= least[tag]) classes.push({ class: scores.tags[tag], confidence: values[value] });
    }
    windows.push({ start_time_sec: number * scores.hop, end_time_sec: number * scores.hop + scores.window, classes });
  }
  return windows;
}

/** A slider for each of the tags that came nearest to being reported. */
export function Thresholds({ job, scores, onScores, thresholds, onThresholds }) {
  const [error, setError] = useState(null);
  const [all, setAll] = useState(false);
  if (!scores)
    return html`<${Problem} error=${error} /><button class="quiet" onClick=${() => loadScores(job).then(onScores, setError)}>Try other thresholds</button>`;
  const shown = scores.order.slice(0, all ? scores.order.length : SHOWN);
  return html`<details class="card" open><summary>Thresholds</summary>
    <p class="hint">A sound is reported from 50 % up. Move one to see what would be reported; the result itself stays.</p>
    ${shown.map((tag) => {
      const name = scores.tags[tag];
      const value = thresholds[name] ?? 0.5;
      return html`<label class="level"><span><${Dot} name=${name} /></span>
        <input type="range" min="0.01" max="0.995" step="0.005" value=${value} aria-valuetext=${`${Math.round(100 * value)} %`} onInput=${(event) => onThresholds({ ...thresholds, [name]: Number(event.target.value) })} />
        <span>${Math.round(100 * value)} % <small>at most ${Math.round(100 * scores.probability(scores.best[tag]))} %</small></span></label>`;
    })}
    <p class="actions">${all ? null : html`<button class="quiet" onClick=${() => setAll(true)}>All ${scores.order.length}</button>`}
      <button class="quiet" onClick=${() => onThresholds({})}>Back to 50 %</button></p>
  </details>`;
}
