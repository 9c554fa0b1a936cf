// What a session hears: the parts that the view of a session and that of the microphone have in common.
import { clock, html, tagName, useState, when } from "./lib.js";
import { Dot, Table, some, useWhileSeen } from "./parts.js";
import { Spectrogram } from "./spectrogram.js";
import { serviceTime } from "./streams.js";
import { Teaching, Verdict, useTaught } from "./teaching.js";

const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
/** Milliseconds without a window after which a session is silent. */
const SILENT = 30_000;

/** The time as `silentSince` needs it: drawn again every five seconds. */
export function useTime() {
  const [, redraw] = useState(0);
  useWhileSeen(() => redraw((count) => count + 1), SILENT / 6000);
  return serviceTime();
}

/** Milliseconds since 1970 of the last window of an open session from which nothing comes, else null. */
export function silentSince(heard, time) {
  return heard.at && !heard.ended && time - heard.at > SILENT ? heard.at : null;
}

const STATES = { writable: "open", readonly: "ended" };

/** The state of a session in a word, "" where it is not known; `error` is why nothing more is heard of it. */
export function stateOf({ session, ended }, error) {
  if (ended || error?.status === 404) return ended?.how ?? "";
  return STATES[session?.state] ?? "";
}

/** What is wrong with the source of a session, in words, "" where nothing is. */
export function saidFault(session) {
  const { state, since } = session?.source ?? {};
  return state ? `${state === "lost" ? "Source lost" : "Source sends silence"} since ${when(since)}` : "";
}

/** The labels of a stream, in words. */
export function labelsOf(labels) {
  return Object.entries(labels ?? {}).map(([name, value]) => `${name}: ${value}`).join(", ");
}

/** When a session was opened; with the day where that is not today. */
export function opened({ created_at: at }) {
  if (!at) return "open";
  const today = new Date(at).toDateString() === new Date().toDateString();
  return `Opened ${today ? CLOCK.format(new Date(at)) : when(at)}`;
}

/** That nothing comes, and since when. */
export function saidSilent(since) {
  return `Silent since ${CLOCK.format(since)}`;
}

/** The time of day at a place in a stream, "" where it is not known: files are not heard as they are sent, and a sender may pause. */
function timeOfDay(heard, seconds) {
  const { session, now, at } = heard ?? {};
  if (session?.type !== "stream" || !session.created_at) return "";
  const began = Date.parse(session.created_at);
  const sent = Math.max(session.seconds ?? 0, now?.end_time ?? 0);
  return Math.abs(at - began - 1000 * sent) > SILENT ? "" : TIME.format(began + 1000 * seconds);
}

/** That a sound is on, and since when. */
export function OnSince({ heard, sound }) {
  return html`<${Dot} name=${sound.name} />, on since ${timeOfDay(heard, sound.start) || clock(sound.start, 1)}`;
}

/** From when to when a sound was on: the time of day, and the place in the stream. */
export function When({ heard, sound: { start, end }, on }) {
  const place = end === null ? clock(start, 1) : `${clock(start, 1)} to ${clock(end, 1)}`;
  const began = timeOfDay(heard, start);
  if (end !== null) return began ? html`${began} to ${timeOfDay(heard, end)}<small>${place}</small>` : place;
  return html`${on ? "on since" : "from"} ${began || place}${began ? html`<small>${place}</small>` : null}`;
}

/** A level in dBFS with its number. */
export function Level({ label, value }) {
  const text = value === null || value === undefined ? "–" : `${value.toFixed(0)} dBFS`;
  return html`<label class="level"><span>${label}</span>
    <meter min="-60" max="0" low="-50" value=${Math.max(-60, value ?? -60)} aria-valuetext=${text}></meter><span>${text}</span></label>`;
}

/** What is heard now, the spectrogram, and the sounds up to now. */
export function HeardNow({ heard, status, socket }) {
  const live = status === "open" || status === "broken";
  const silent = silentSince(heard, useTime());
  return html`<${Now} heard=${heard} status=${status} silent=${silent} />
    ${live || heard.strips.length
      ? html`<section class="card"><h2>Spectrogram</h2><${Spectrogram} heard=${heard} />
          <p class="hint">The spectrogram starts when you open this page. It is not stored.</p></section>`
      : null}
    <section><h2>Events</h2>
      <p class="hint">${some(heard.windows, "window")} here. ${some(heard.sounds.total, "sound")}.</p>
      <${NoSocket} socket=${heard.ended?.how === "deleted" ? null : socket} />
      <${SoundTable} heard=${heard} live=${live && silent === null} />
      <${Windows} heard=${heard} />
      ${heard.session ? html`<${Teaching} source=${`sessions/${heard.session.session_id}`} />` : null}
    </section>`;
}

/** That a session broke, moved or ended. */
export function SessionState({ heard, status }) {
  if (status === "broken") return html`<p class="problem" role="status">The connection is broken. Trying again; nothing is lost.</p>`;
  if (heard.ended?.how === "deleted") return html`<p class="problem" role="status">The session was deleted.</p>`;
  if (!heard.ended && saidFault(heard.session)) return html`<p class="problem" role="status">${saidFault(heard.session)}</p>`;
  if (heard.session?.error) return html`<p class="problem">${heard.session.error}</p>`;
  return heard.ended ? html`<p class="hint" role="status">The session has ended, after ${some(heard.ended.windows, "window")}.</p>` : null;
}

/** That no socket opens, where that is so. */
export function NoSocket({ socket }) {
  if (socket?.status === "refused") return html`<p class="problem" role="status">No sound events: ${socket.error.message}</p>`;
  if (socket?.status !== "blocked") return null;
  return html`<p class="problem" role="status">The service answers but opens no socket: a proxy in between must let WebSockets through.</p>`;
}

function Now({ heard, status, silent }) {
  const { now } = heard;
  const current = status === "open" && silent === null;
  const head = html`<h2>${current ? "Now" : "Last heard"}</h2>
    ${status === "open" && silent !== null ? html`<p class="hint" role="status">${saidSilent(silent)}</p>` : null}`;
  if (!now)
    return html`<section class="card">${head}
      <p class="empty" role="status">${status === "loading" ? "Loading…" : "Nothing was heard yet."}</p></section>`;
  const on = current ? [...heard.sounds.on.values()] : [];
  return html`<section class="card">${head}
    <p class="hint">${timeOfDay(heard, now.start_time)} (${clock(now.start_time, 1)} to ${clock(now.end_time, 1)})</p>
    ${on.length
      ? html`<ul class="findings">
          ${on.map((one) => html`<li key=${one.number}><${OnSince} heard=${heard} sound=${one} /></li>`)}</ul>`
      : null}
    <${Level} label="Level" value=${now.level?.rms} /><${Level} label="Peak" value=${now.level?.peak} />
    ${now.top.map(
      (tag) => html`<label key=${tag.name} class=${`level ${tag.probability < 0.5 ? "faint" : ""}`}>
        <span><${Dot} name=${tag.name} /></span><meter min="0" max="1" value=${tag.probability}></meter>
        <span>${Math.round(100 * tag.probability)} %</span></label>`,
    )}
    ${now.top.some((tag) => tag.probability >= 0.5) ? null : html`<p class="hint">Nothing is reported: no sound reaches 50 %.</p>`}
    ${heard.behind ? html`<p class="hint">This page is behind; windows that come late have no levels.</p>` : null}
  </section>`;
}

function SoundTable({ heard, live }) {
  const [taught] = useTaught();
  const { list, on } = heard.sounds;
  if (!list.length) return html`<p class="empty">No events yet.</p>`;
  const isOn = (one) => live && on.get(one.name) === one;
  return html`<${Table} label="Sounds" head=${["Sound", "When", "Surest", ...(taught ? [`Is it ${tagName(taught)}?`] : [])]}>
    ${list.slice(-100).reverse().map(
      (one) => html`<tr key=${one.number}><td><${Dot} name=${one.name} /></td>
        <td><${When} heard=${heard} sound=${one} on=${isOn(one)} /></td><td>${Math.round(100 * one.probability)} %</td>
        ${taught ? html`<td><${Verdict} name=${taught} source=${`sessions/${heard.session.session_id}`} start=${one.start} end=${one.end ?? one.start + 2} /></td>` : null}</tr>`,
    )}<//>`;
}

/** The windows from which the sounds follow, once they are asked for. */
function Windows({ heard }) {
  const [open, setOpen] = useState(false);
  if (!heard.list.length) return null;
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>Windows</summary>
    ${open
      ? html`<${Table} label="Windows" head=${["Window", "When", "Reported"]}>
          ${heard.list.toReversed().map(
            (one) => html`<tr key=${one.window}><td>${one.window}</td>
              <td>${timeOfDay(heard, one.start)}<small>${clock(one.start, 1)} to ${clock(one.end, 1)}</small></td>
              <td>${one.tags.map(said).join(", ") || "–"}</td></tr>`,
          )}<//>`
      : null}
  </details>`;
}

function said(tag) {
  return `${tagName(tag.name)} ${Math.round(100 * tag.probability)} %`;
}
