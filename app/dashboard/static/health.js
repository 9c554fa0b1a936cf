// How the nodes are: what has to be looked at first, then what there is.
import { bytes, html, lengthInWords, useRef, useState, when } from "./lib.js";
import { get } from "./api.js";
import { Problem, State, Table, useLoaded, useWhileSeen } from "./parts.js";

const REFRESH_SECONDS = 5;
/** Seconds after which an answer says nothing of now. */
const STALE_SECONDS = 15;
const WORDS = { good: "All is well", slow: "Something is slow or was set aside", bad: "Something does not work" };

export function Health() {
  const { value, error, loading, again } = useLoaded((signal) => get("/admin/v1/nodes", { as: "operator", signal }), []);
  const last = useRef({});
  if (value && last.current.value !== value) last.current = { value, at: new Date() };
  // A new question before the answer to the last one would break that off.
  const busy = useRef(false);
  busy.current = loading;
  const [now, setNow] = useState(Date.now());
  useWhileSeen(() => {
    setNow(Date.now());
    if (!busy.current) again();
  }, REFRESH_SECONDS);
  const { value: known, at } = last.current;
  // Whichever lane was asked.
  const nodes = known?.nodes.toSorted((one, other) => (one.node?.lane ?? 0) - (other.node?.lane ?? 0));
  if (!known) return error ? html`<section class="card"><h2>Health</h2><${Problem} error=${error} again=${again} /></section>` : html`<p class="empty" role="status">Asking the nodes…</p>`;
  const stale = error || now - at > 1000 * STALE_SECONDS;
  return html`<section class="card"><h2>Health</h2>
      <p class="lead" role="status"><${State} state=${error ? "bad" : stale ? "old" : known.state}>${stale ? `No answer since ${at.toLocaleTimeString()}` : WORDS[known.state]}<//></p>
      <${Problem} error=${error} />
      ${known.missing.length ? html`<p><${State} state="bad" /> No node serves ${known.missing.length === known.partitions ? "any partition" : `partition ${known.missing.join(", ")}`}.</p>` : null}
      ${nodes.map((one) => one.findings.length ? html`<ul class="findings" aria-label=${one.url}>${one.findings.map((finding) => html`<li><${State} state=${finding.state} /> ${known.nodes.length > 1 ? `${one.url}: ` : ""}${finding.text}</li>`)}</ul>` : null)}
      <p class="hint">As of ${at.toLocaleTimeString()}; refreshed every ${REFRESH_SECONDS} s while this page is visible.</p>
    </section>
    ${nodes.map((one) => html`<${Node} key=${one.url} report=${one} stale=${stale} />`)}
    <${Parked} nodes=${known.nodes} />`;
}

function Node({ report, stale }) {
  const { node } = report;
  if (!node) return html`<section class="card"><h2>${report.url} <${State} state="bad">No answer<//></h2><p>${report.findings[0]?.text}</p></section>`;
  const behind = node.partitions.reduce((sum, one) => sum + behindOf(one), 0);
  const serving = node.partitions.filter((one) => one.state === "serving").length;
  const name = node.lane === undefined ? report.url : `Lane ${node.lane}, ${report.url}`;
  return html`<section class="card"><h2>${name} <${State} state=${stale ? "old" : report.state}>${stale ? "Outdated" : null}<//></h2>
    <dl class="facts">
      <div><dt>Version</dt><dd>${node.version}, up for ${lengthInWords(node.up_seconds)}</dd></div>
      <div><dt>Open</dt><dd>${node.sessions} ${node.sessions === 1 ? "session" : "sessions"}, ${node.jobs} ${node.jobs === 1 ? "job" : "jobs"}</dd></div>
      <div><dt>Longest wait</dt><dd>analysis ${node.lag_seconds.toFixed(1)} s, a job's services ${node.job_lag_seconds.toFixed(1)} s</dd></div>
      <div><dt>Models</dt><dd>${node.models.map((model) => html`<code>${model}</code> `)}</dd></div>
    </dl>
    <div class="columns">
      <div><h3>Queues</h3><${Table} label=${`Queues of ${report.url}`} head=${["What", "Holds", "Full"]}>
        ${node.queues.map((queue) => html`<tr><th scope="row">${queue.name}</th><td>${held(queue)}</td><td>${share(queue)}</td></tr>`)}<//></div>
      <div><h3>Disks</h3><${Table} label=${`Disks of ${report.url}`} head=${["Holds", "Free", "Used", "Kept free"]}>
        ${node.disks.map((disk) => html`<tr><th scope="row">${disk.holds}</th><td>${bytes(disk.free_bytes)}</td><td><${Bar} value=${1 - disk.free_bytes / disk.total_bytes} /></td><td>${bytes(disk.kept_free_bytes)}</td></tr>`)}<//></div>
    </div>
    <h3>Workers</h3>
    ${node.workers.length
      ? html`<${Table} label=${`Workers of ${report.url}`} head=${["Process", "State", "Busy", "Sessions", "Waiting requests", "Deaths", "Serves"]}>
          ${node.workers.map((one) => html`<tr><th scope="row">${one.process ?? "none"}</th><td><${State} state=${one.process ? "good" : "slow"}>${one.state}<//></td><td><${Bar} value=${one.busy} /></td>
            <td>${one.sessions}</td><td>${one.waiting}</td><td>${one.deaths}</td><td>${one.project === null ? "all projects" : html`project <code>${one.project}</code>`}</td></tr>`)}<//>`
      : html`<p class="empty">Unknown: the node runs an earlier version.</p>`}
    <h3>Engines</h3>
    ${node.engines.length
      ? html`<${Table} label=${`Engines of ${report.url}`} head=${["Engine", "State", "Last took", "Now", "Calls", "Last error", "Where"]}>
          ${node.engines.map((one) => html`<tr><th scope="row">${one.name}<small>${one.model ?? "its own model"}</small></th>
            <td><${State} state=${one.reachable ? (one.failing ? "slow" : "good") : "bad"}>${one.reachable ? (one.failing ? "Last call failed" : "Answers") : "Does not answer"}<//></td>
            <td>${one.latency_ms === null ? "no call yet" : lengthOf(one.latency_ms)}</td><td>${one.in_flight} of ${one.in_flight_bound}</td><td>${one.calls}${one.failures ? `, ${one.failures} failed` : ""}</td>
            <td class="wide">${one.error ? html`${one.error}<small>${when(one.failed_at)}</small>` : "none"}</td><td>${one.address}</td></tr>`)}<//>`
      : html`<p class="empty">No engine is set up: jobs hear only sounds.</p>`}
    <details><summary>${serving} of ${node.partitions.length} partitions here serve, ${behind ? `${behind} records behind the log` : "level with the log"}</summary>
      <${Table} label=${`Partitions of ${report.url}`} head=${["Partition", "State", "Epoch", "Topic", "Folded up to", "Behind"]}>
        ${node.partitions.map((one) => (one.topics.length ? one.topics : [null]).map((place, index) => html`<tr>
          <td>${index ? "" : one.number}</td><td>${index ? "" : html`<${State} state=${{ serving: "good", coming: "slow", stopped: "bad" }[one.state]}>${one.state}<//>${one.reason ? html`<small>${one.reason}</small>` : null}`}</td><td>${index ? "" : one.epoch}</td>
          <td>${place ? place.topic : ""}</td><td>${place ? place.folded : ""}</td><td>${place ? place.behind : ""}</td></tr>`))}<//></details>
    ${node.partitions.length ? null : html`<p class="empty">It owns no partition.</p>`}
  </section>`;
}

function Parked({ nodes }) {
  const known = nodes.filter(({ node }) => node?.parked);
  const count = known.reduce((sum, { node }) => sum + node.parked.count, 0);
  const newest = known.flatMap(({ node }) => node.parked.newest).sort((one, other) => (one.at < other.at ? 1 : -1)).slice(0, 100);
  return html`<section class="card"><h2>Parked records</h2>
    ${count
      ? html`<p>${count} ${count === 1 ? "record" : "records"} could not be read and were set aside; the log keeps them for a week.${count > newest.length ? ` The newest ${newest.length}:` : ""}</p>
          <${Table} label="Parked records" head=${["When", "Topic", "Partition", "Offset", "Cause"]}>
            ${newest.map((one) => html`<tr><td>${when(one.at)}</td><td>${one.topic || "unknown"}</td><td>${one.partition}</td><td>${one.offset}</td><td class="wide">${one.cause}</td></tr>`)}<//>`
      : html`<p class="empty">None. A record that cannot be read is set aside here with its cause, and its partition moves on.</p>`}
  </section>`;
}

function behindOf(partition) {
  return partition.topics.reduce((sum, place) => sum + place.behind, 0);
}

function lengthOf(milliseconds) {
  return milliseconds < 1000 ? `${milliseconds} ms` : lengthInWords(milliseconds / 1000);
}

function held(queue) {
  const parts = [];
  if (queue.bytes !== null) parts.push(`${bytes(queue.bytes)}${queue.bytes_bound === null ? "" : ` of ${bytes(queue.bytes_bound)}`}`);
  if (queue.items !== null) parts.push(`${queue.items}${queue.items_bound === null ? "" : ` of ${queue.items_bound}`}`);
  return parts.join("; ");
}

function share(queue) {
  if (queue.bytes_bound !== null) return html`<${Bar} value=${queue.bytes / queue.bytes_bound} />`;
  return queue.items_bound === null ? "no limit" : html`<${Bar} value=${queue.items / queue.items_bound} />`;
}

function Bar({ value }) {
  return html`<span class="line"><meter min="0" max="1" high="0.8" value=${value} aria-hidden="true"></meter>${Math.round(100 * value)} %</span>`;
}
