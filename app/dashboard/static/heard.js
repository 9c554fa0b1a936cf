// What a session hears: the parts that the view of a session and that of the microphone have in common.
import { clock, html, tagName, useState } from "./lib.js";
import { Dot, Table } from "./parts.js";
import { Spectrogram } from "./spectrogram.js";
import { Teaching, Verdict, useTaught } from "./teaching.js";

const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** The time of day at a place in a stream, "" where it is not known: files are not heard as they are sent. */
function timeOfDay(session, seconds) {
  if (session?.type !== "stream" || !session.created_at) return "";
  return TIME.format(Date.parse(session.created_at) + 1000 * seconds);
}

/** That a sound is on, and since when. */
export function OnSince({ session, sound }) {
  return html`<${Dot} name=${sound.name} />, on since ${timeOfDay(session, sound.start) || clock(sound.start, 1)}`;
}

/** From when to when a sound was on: the time of day, and the place in the stream. */
export function When({ session, sound: { start, end }, on }) {
  const place = end === null ? clock(start, 1) : `${clock(start, 1)} to ${clock(end, 1)}`;
  const began = timeOfDay(session, start);
  if (end !== null) return began ? html`${began} to ${timeOfDay(session, end)}<small>${place}</small>` : place;
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
  return html`<${Now} heard=${heard} status=${status} />
    ${live || heard.strips.length
      ? html`<section class="card"><h2>Spectrogram</h2><${Spectrogram} heard=${heard} />
          <p class="hint">The sound that comes while this page is open. It is not stored.</p></section>`
      : null}
    <section><h2>Events</h2>
      <p class="hint">${heard.windows} windows here. ${heard.sounds.total} sounds.</p>
      <${NoSocket} socket=${heard.ended?.how === "deleted" ? null : socket} />
      <${SoundTable} heard=${heard} live=${live} />
      <${Windows} heard=${heard} />
      ${heard.session ? html`<${Teaching} source=${`sessions/${heard.session.session_id}`} />` : null}
    </section>`;
}

/** That a session broke, moved or ended. */
export function SessionState({ heard, status }) {
  if (status === "broken") return html`<p class="problem" role="status">The connection is broken. Trying again; nothing is lost.</p>`;
  if (heard.ended?.how === "deleted") return html`<p class="problem" role="status">The session was deleted.</p>`;
  if (heard.session?.error) return html`<p class="problem">${heard.session.error}</p>`;
  return heard.ended ? html`<p class="hint" role="status">The session has ended, after ${heard.ended.windows} windows.</p>` : null;
}

/** That no socket opens, where that is so. */
export function NoSocket({ socket }) {
  if (socket?.status === "refused") return html`<p class="problem" role="status">No sound events: ${socket.error.message}</p>`;
  if (socket?.status !== "blocked") return null;
  return html`<p class="problem" role="status">The service answers but opens no socket: a proxy in between must let WebSockets through.</p>`;
}

function Now({ heard, status }) {
  const { now } = heard;
  if (!now)
    return html`<section class="card"><h2>${status === "open" ? "Now" : "Last heard"}</h2>
      <p class="empty" role="status">${status === "loading" ? "Loading…" : "Nothing was heard yet."}</p></section>`;
  const on = status === "open" ? [...heard.sounds.on.values()] : [];
  return html`<section class="card"><h2>${status === "open" ? "Now" : "Last heard"}</h2>
    <p class="hint">${timeOfDay(heard.session, now.start_time)} (${clock(now.start_time, 1)} to ${clock(now.end_time, 1)})</p>
    ${on.length
      ? html`<ul class="findings">
          ${on.map((one) => html`<li key=${one.number}><${OnSince} session=${heard.session} sound=${one} /></li>`)}</ul>`
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
        <td><${When} session=${heard.session} sound=${one} on=${isOn(one)} /></td><td>${Math.round(100 * one.probability)} %</td>
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
              <td>${timeOfDay(heard.session, one.start)}<small>${clock(one.start, 1)} to ${clock(one.end, 1)}</small></td>
              <td>${one.tags.map(said).join(", ") || "–"}</td></tr>`,
          )}<//>`
      : null}
  </details>`;
}

function said(tag) {
  return `${tagName(tag.name)} ${Math.round(100 * tag.probability)} %`;
}
