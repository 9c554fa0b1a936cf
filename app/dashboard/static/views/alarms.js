// Alarms of the project as they come, the rules that make them, and where they are sent.
import { html, useEffect, useState } from "../lib.js";
import { get } from "../api.js";
import { AlarmList } from "../alarm-list.js";
import { Destinations } from "../destinations.js";
import { afterSource } from "../events.js";
import { labelsOf, saidFault } from "../heard.js";
import { Problem, State, useLoaded, usePages } from "../parts.js";
import { Rules } from "../rules.js";
import { events } from "../streams.js";

/** Alarms that are read at first: rules count the false ones among them. */
const PAGE = 100;

export default function Alarms() {
  const rules = useLoaded((signal) => get("/api/v1/alarm_rules", { signal }), []);
  const destinations = useLoaded((signal) => get("/api/v1/destinations", { signal }), []);
  const pages = usePages(`/api/v1/alarms?count=${PAGE}`, "alarms");
  const live = useLive();
  const shown = merged(pages.rows, live.alarms);
  const sent = destinations.value?.destinations ?? [];
  const again = () => {
    rules.again();
    destinations.again();
  };
  return html`<${AlarmList} pages=${pages} alarms=${shown} live=${live} destinations=${sent} />
    <${Sources} sources=${live.sources} />
    <${Problem} error=${rules.error ?? destinations.error} again=${again} />
    <${Rules} loaded=${rules} alarms=${shown} destinations=${sent} sources=${live.sources} />
    <${Destinations} loaded=${destinations} onChange=${again} />`;
}

/** Streams that have a name: their labels, and what is wrong with them. */
function Sources({ sources }) {
  const named = [...sources.values()].filter((one) => one.type === "stream" && one.file_name && one.state === "writable");
  if (!named.length) return null;
  return html`<section aria-label="Sources"><h2>Sources</h2><ul class="findings">
    ${named.sort((one, other) => one.file_name.localeCompare(other.file_name)).map((one) => html`<li key=${one.session_id}>
      <a href=${`#/live/${one.session_id}`}>${one.file_name}</a> <span class="hint">${labelsOf(one.metadata)}</span> <${State} state=${one.source ? "bad" : "good"}>${saidFault(one) || "no fault"}<//></li>`)}</ul></section>`;
}

/** Alarms that were listed, and those that came since or have changed, newest first. */
function merged(listed, came) {
  const fresh = [...came.values()].filter((one) => !listed.some((other) => other.id === one.id));
  return [...fresh, ...listed.map((one) => came.get(one.id) ?? one)].sort((one, other) => other.made_at.localeCompare(one.made_at) || one.id.localeCompare(other.id));
}

/** What comes while the page is open: {alarms: Map by id, sources: Map by session, newest, status, error, put}. */
function useLive() {
  const [state, set] = useState({ alarms: new Map(), sources: new Map(), newest: null, status: "loading", error: null });
  const put = (alarm, isNew = false) => set((before) => ({ ...before, alarms: new Map(before.alarms).set(alarm.id, alarm), newest: isNew ? alarm : before.newest }));
  const change = (id, next) => set((before) => {
    const session = next(before.sources.get(id));
    const sources = new Map(before.sources);
    if (session) sources.set(id, session);
    else sources.delete(id);
    return { ...before, sources };
  });
  useEffect(() => {
    const stop = new AbortController();
    const known = new Set();
    const began = Date.now();
    (async () => {
      for await (const { event, data } of events("/api/v1/live", stop.signal, { last: [] })) {
        if (event === "open" || event === "broken") set((before) => ({ ...before, status: event }));
        else if (event.startsWith("source.")) change(data.session_id, (one) => one && afterSource(one, event, data.time));
        else if (event === "ended" || event === "deleted") change(data.session_id, () => undefined);
        else if (event === "session") change(data.session_id, () => data);
        else if (event === "alarm") {
          // One that changes comes again, and so may those that wait.
          put(data, !known.has(data.id) && Date.parse(data.made_at) > began - 60_000);
          known.add(data.id);
        }
      }
    })().catch((error) => stop.signal.aborted || set((before) => ({ ...before, error })));
    return () => stop.abort();
  }, []);
  return { ...state, put };
}
