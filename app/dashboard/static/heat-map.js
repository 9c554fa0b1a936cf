// A day by sound and hour: a table whose cells have the colour of their content.
import { html, useEffect, useRef, useState } from "./lib.js";
import { RETRY, get } from "./api.js";
import { Dot, Problem, Wide } from "./parts.js";

const SHOWN = 12;
/** Most requests while the answer is incomplete (`left_out`). */
const TRIES = 20;
const REFRESH = 60_000;
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);

/** The day so many days ago, as the reader's calendar has it: a day may have 23 or 25 hours. */
export function dayAgo(days) {
  const noon = new Date(new Date().setHours(12 - 24 * days, 0, 0, 0));
  return new Date(noon.getTime() - noon.getTimezoneOffset() * 60_000).toISOString().slice(0, 10);
}

/** The query for a day, with the offset of that day, which daylight saving time may have changed since. */
export function dayQuery(day) {
  return `day=${day}&offset_minutes=${-new Date(`${day}T12:00`).getTimezoneOffset()}`;
}

/** Seconds as a cell shows them. */
function brief(seconds) {
  if (!seconds) return "";
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 3570 ? `${Math.round(seconds / 60)} min` : "1 h";
}

/** How strong a cell's colour is, 0 to 5: a second of a siren is to be seen beside an hour of rain. */
function strength(seconds) {
  return seconds ? Math.min(5, 1 + Math.floor(Math.log(seconds + 1) / Math.log(6))) : 0;
}

/** A number that grows with each new sound, and each time the windows have doubled. */
export function growth(sounds, windows) {
  return sounds + Math.ceil(Math.log2(windows + 1));
}

/**
 * The day of `path`, an operation that answers an `Activity`; `onDay` is told which day is asked for. When `heard`, the
 * `growth` of what this page hears, changes, it is asked for again, so that it is not stale beside that.
 */
export function HeatMap({ path, as = "project", day, onDay, heard = 0 }) {
  const [state, set] = useState({ loading: true });
  const [all, setAll] = useState(false);
  const [turn, again] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    const load = async () => {
      let left = Infinity;
      for (let tries = 0; tries < TRIES && left > 0; tries++) {
        const value = await get(`${path}?${dayQuery(day)}`, { as, signal: stop.signal });
        set({ value, loading: false });
        if (value.left_out >= left && tries > 3) break;
        left = value.left_out;
      }
      if (day === dayAgo(0)) timer = setTimeout(run, REFRESH);
    };
    const run = () => load().catch((error) => {
      if (stop.signal.aborted) return;
      set((before) => ({ ...before, error, loading: false }));
      if (error instanceof TypeError) timer = setTimeout(run, RETRY);
    });
    set((before) => ({ ...before, loading: true, error: null }));
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [path, day, turn, heard]);
  const { value, error, loading } = state;
  const table = useRef(null);
  const lastHour = value ? value.analysed.findLastIndex(Boolean) : 0;
  // On a narrow screen the hours that matter are to be seen.
  useEffect(() => {
    const cell = table.current?.querySelectorAll("thead th")[lastHour + 1];
    if (cell) table.current.scrollLeft = cell.offsetLeft + cell.offsetWidth - table.current.clientWidth;
  }, [lastHour, day]);
  const rows = value?.tags.slice(0, all ? undefined : SHOWN) ?? [];
  return html`<section class="card"><h2>By hour</h2>
    <p class="filters"><label>Day <input type="date" value=${day} min="1970-01-02" max=${dayAgo(0)} onChange=${(event) => event.target.value && onDay(event.target.value)} /></label>
      <button class="quiet" onClick=${() => again((count) => count + 1)}>Refresh</button></p>
    <${Problem} error=${error} again=${() => again((count) => count + 1)} />
    ${value?.missing ? html`<p class="problem">${value.missing.partitions} of ${value.missing.of} partitions do not answer now, so some sessions may be missing.</p>` : null}
    ${value?.left_out ? html`<p class="hint" role="status">${value.left_out} sessions are not fully counted yet.</p>` : null}
    ${rows.length
      ? html`<${Wide} area=${table}><table class="heat"><caption class="unseen">For how long each sound was reported in each hour of ${day}</caption>
          <thead><tr><th scope="col">Sound</th>${HOURS.map((hour) => html`<th scope="col" class=${value.analysed[hour] ? "" : "quiet-hour"}>${String(hour).padStart(2, "0")}</th>`)}</tr></thead>
          <tbody>${rows.map((tag) => html`<tr key=${tag.name}><th scope="row"><${Dot} name=${tag.name} /></th>
            ${tag.seconds.map((seconds) => html`<td class=${`heat-${strength(seconds)}`}>${brief(seconds)}</td>`)}</tr>`)}</tbody></table><//>
          ${value.tags.length > SHOWN ? html`<button class="quiet" onClick=${() => setAll(!all)}>${all ? "Fewer" : `All ${value.tags.length} sounds`}</button>` : null}`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null
      : html`<p class="empty">${value?.analysed.some(Boolean) ? "No sound that the model knows was heard on this day." : "Nothing was sent on this day."}</p>`}
  </section>`;
}
