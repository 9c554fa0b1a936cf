// Alarms in a table: what was found, where it was sent, and whether it was right.
import { html, useState } from "./lib.js";
import { request } from "./api.js";
import { labelsOf } from "./heard.js";
import { Dot, Problem, State } from "./parts.js";

const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const SAID = { absent: "silence", loud: "loud", "source.lost": "source lost", "source.back": "source back", "source.silent": "source silent" };
const STATES = { pending: "slow", delivered: "good", failed: "bad" };

export function moment(text) {
  return MOMENT.format(new Date(text));
}

/** What a rule found: the tags, the level, the reason. */
export function What({ found }) {
  const tags = found.tags.slice(0, 3).map((tag) => html`<div key=${tag.name}><${Dot} name=${tag.name} /> ${Math.round(100 * tag.probability)} %</div>`);
  const level = found.level === null ? "" : ` ${found.level.toFixed(0)} dBFS`;
  return html`${tags.length ? tags : SAID[found.what] ?? found.what}${level}${found.reason ? html`<small>${found.reason}</small>` : null}
    ${found.left_out ? html`<small>${found.left_out} more were left out before</small>` : null}`;
}

/** The stream in which something was found, with its labels. */
export function Source({ found }) {
  const labels = labelsOf(found.labels);
  return html`<a href=${`#/live/${found.session_id}`}>${found.source || found.session_id}</a>${labels ? html`<small>${labels}</small>` : null}`;
}

/** When something began, and whose clock that is. */
export function Began({ found }) {
  return html`${moment(found.begins_at)}<small>${found.told_by_client ? "by the source’s clock" : "by the service’s clock"}</small>`;
}

/** Alarms that are drawn at first, and by each "More". */
const FIRST = 6;
const FURTHER = 50;

export function AlarmList({ pages, alarms, live, destinations }) {
  const { error, loading, again, more, value } = pages;
  const [count, setCount] = useState(FIRST);
  const names = new Map(destinations.map((one) => [one.id, one.name]));
  const { newest } = live;
  const further = () => {
    if (more && count + FURTHER > alarms.length) more();
    setCount(count + FURTHER);
  };
  return html`<section>
    <${Problem} error=${error ?? live.error} again=${error && again} />
    ${live.status === "broken" && !live.error ? html`<p class="problem" role="status">The connection is broken. Trying again…</p>` : null}
    ${value?.missing ? html`<p class="problem">${value.missing.partitions} of ${value.missing.of} partitions do not answer now, so some alarms may be missing.</p>` : null}
    <p class="unseen" role="status">${newest ? `New alarm: ${newest.rule}, ${newest.source ?? "no name"}` : ""}</p>
    ${alarms.length
      ? html`<ul class="alarms" aria-label="Alarms">${alarms.slice(0, count).map((one) => html`<${Item} key=${one.id} alarm=${one} names=${names} onChange=${live.put} />`)}</ul>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">No alarms in the last week.</p>`}
    ${more || alarms.length > count ? html`<p><button onClick=${further} disabled=${loading}>Earlier alarms</button></p>` : null}
  </section>`;
}

function Item({ alarm, names, onChange }) {
  const [error, setError] = useState(null);
  const path = `/api/v1/alarms/${alarm.session_id}/${alarm.sequence}`;
  const act = async (method, tail, /** @type {any} */ body = undefined) => {
    setError(null);
    try {
      onChange(await (await request(method, path + tail, { body })).json());
    } catch (problem) {
      setError(problem);
    }
  };
  const what = `${alarm.rule}, ${moment(alarm.begins_at)}`;
  const send = (one) => act("POST", `/deliveries/${one.destination_id}`);
  return html`<li class=${`card ${alarm.false ? "stale" : ""}`}>
    <div><strong>${alarm.rule}</strong><div><${What} found=${alarm} /></div></div>
    <div><${Source} found=${alarm} /><div><${Began} found=${alarm} /></div></div>
    <div>${alarm.deliveries.map((one) => html`<${Delivery} key=${one.destination_id} delivery=${one} name=${names.get(one.destination_id) ?? "a deleted destination"} what=${what} onSend=${() => send(one)} />`)}
      ${alarm.deliveries.length ? null : html`<span class="hint">Sent nowhere</span>`}<${Problem} error=${error} /></div>
    <div><label><input type="checkbox" checked=${alarm.false} aria-label=${`False alarm: ${what}`} onChange=${(event) => act("PATCH", "", { false: event.target.checked })} /> False alarm</label></div></li>`;
}

function Delivery({ delivery, name, what, onSend }) {
  const { state, attempts, at, error } = delivery;
  const detail = state === "delivered" ? "" : [error, state === "pending" && attempts && at ? `next try ${moment(at)}` : "", attempts > 1 ? `${attempts} tries` : ""].filter(Boolean).join(", ");
  return html`<div><${State} state=${STATES[state]}>${name}: ${state}<//> <button class="quiet" aria-label=${`Send again to ${name}: ${what}`} onClick=${onSend}>Send again</button>
    ${detail ? html`<small>${detail}</small>` : null}</div>`;
}
