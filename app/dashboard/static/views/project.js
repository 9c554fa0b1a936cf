// The project: its key, its plan, what it used.
import { html, lengthInWords, tagName, useState, when } from "../lib.js";
import { get, key, request, setKey, url } from "../api.js";
import { Copy, Problem, Progress, Sure, Wide, some, useLoaded } from "../parts.js";

const HOUR = 3600;
const DAY = 24 * HOUR;

export default function Project() {
  const project = useLoaded((signal) => get("/api/v1/project", { signal }), []);
  const [fresh, setFresh] = useState(null);
  const [sure, setSure] = useState(false);
  const [present, setPresent] = useState("");
  const [error, setError] = useState(null);
  // A session token, which a link gave, cannot change its key.
  const passed = key("project").startsWith("pass_");
  const rotate = async () => {
    setSure(false);
    setError(null);
    try {
      /** @type {Record<string, string>} */
      const more = passed ? { "X-Api-Key": present.trim() } : {};
      const made = (await (await request("POST", "/api/v1/project/key", { more })).json()).key;
      setPresent("");
      setFresh(made);
      setKey("project", made);
      project.again();
    } catch (problem) {
      setError(problem);
    }
  };
  const one = project.value;
  const install = `python3 -m venv .client\n.client/bin/pip install -q ./app/client\nexport EARSHOT_PROJECT_KEY=esp_...`;
  const snippet = `import os\n\nfrom earshot_client import Client\n\nwith Client("${location.origin}${url("")}", os.environ["EARSHOT_PROJECT_KEY"]) as client:\n    for event in client.detect("recording.wav"):\n        print(event)`;
  return html`<${Problem} error=${project.error ?? error} again=${project.error && project.again} />
    ${one
      ? html`<div class="card"><h2>${one.name} <span class="hint">of ${one.organization}</span></h2>
          <dl class="facts">
            <div><dt>Key</dt><dd><code>${one.key.shown_as}</code></dd></div>
            <div><dt>Made</dt><dd>${when(one.key.created_at)}</dd></div>
            <div><dt>Last used</dt><dd>${when(one.key.last_used_at)}</dd></div>
          </dl>
          ${fresh
            ? html`<p role="status">The new key, shown only once: <code class="key">${fresh}</code> <${Copy} text=${fresh} /></p>`
            : html`<button class="danger" onClick=${() => setSure(true)}>Make a new key…</button>`}
        </div>
        <${Keeping} project=${one} onChange=${project.again} />
        <div class="card"><h2>Plan</h2>
          ${one.free_seconds === null
            ? html`<p>No limit. The services of jobs used ${lengthInWords(one.used_seconds)} this month; each service counts the length of a recording.</p>`
            : html`<${Progress} label=${`${lengthInWords(one.used_seconds)} of ${lengthInWords(one.free_seconds)} this month, counted by service`} value=${one.free_seconds ? Math.min(1, one.used_seconds / one.free_seconds) : 1} />
                <p>${one.used_seconds < one.free_seconds ? `${lengthInWords(one.free_seconds - one.used_seconds)} are left.` : "Nothing is left: jobs are refused until the month ends."}</p>`}
        </div>`
      : project.loading ? html`<p class="empty" role="status">Loading…</p>` : null}
    <${Usage} />
    <div class="card"><h2>A first program</h2>
      <p>Install the client in a checkout of Earshot, in a virtual environment; replace the dots with your project key:</p><pre>${install}</pre><${Copy} text=${install} />
      <p>Save this as <code>program.py</code> beside your recording, and run <code>.client/bin/python program.py</code>:</p><pre>${snippet}</pre><${Copy} text=${snippet} /></div>
    ${sure
      ? html`<${Sure} question="Make a new key?" action="Make a new key" onYes=${rotate} onNo=${() => setSure(false)}>
          <p>The current key stops working: here at once, on other nodes within a minute. This cannot be undone. Open sessions go on; browsers signed in by a link are signed out.</p>
          ${passed ? html`<label>The current key <input type="password" autocomplete="off" spellcheck=${false} value=${present} onInput=${(event) => setPresent(event.target.value)} /></label>
            <p class="hint">You signed in by a link, which is not enough to change the key. The operator can also make a new one.</p>` : null}<//>`
      : null}`;
}

/** How long the audio of recordings is kept. */
function Keeping({ project, onChange }) {
  const [error, setError] = useState(null);
  const { keep_audio_seconds: seconds, default_keep_audio_seconds: normal, longest_keep_audio_seconds: longest } = project;
  const choices = [...new Set([seconds ?? 0, 0, HOUR, DAY, 7 * DAY, longest])].filter((one) => one <= longest).sort((one, other) => one - other);
  const choose = async (event) => {
    setError(null);
    try {
      await request("PATCH", "/api/v1/project", { body: { keep_audio_seconds: event.target.value === "" ? null : Number(event.target.value) } });
    } catch (problem) {
      setError(problem);
    }
    onChange();
  };
  const words = (one) => {
    if (!one) return "only until it is analysed";
    return one % DAY || one === DAY ? `for ${some(Number((one / HOUR).toFixed(1)), "hour")}` : `for ${one / DAY} days`;
  };
  return html`<div class="card"><h2>Audio of recordings</h2>
    <p><label>Keep it <select value=${seconds ?? ""} onChange=${choose}>
      <option value="">the operator's default: ${words(normal)}</option>
      ${choices.map((one) => html`<option value=${one}>${words(one)}</option>`)}</select></label></p>
    <p class="hint">While it is kept, a result shows its spectrogram and can be played, and a voice in it can be registered. A change applies only to recordings sent from now on.</p>
    <${Problem} error=${error} />
  </div>`;
}

function Usage() {
  const [days, setDays] = useState(31);
  const since = new Date(Date.now() - (days - 1) * 86_400_000).toISOString().slice(0, 10);
  const { value, error, loading, again } = useLoaded((signal) => get(`/api/v1/project/usage?since=${since}`, { signal }), [days]);
  const rows = value?.rows ?? [];
  const most = Math.max(1, ...rows.map((row) => row.seconds));
  return html`<section class="card"><h2>Usage</h2>
    <p class="filters"><label>Time <select value=${days} onChange=${(event) => setDays(Number(event.target.value))}>${[7, 31, 92, 366].map((count) => html`<option value=${count}>${count} days</option>`)}</select></label></p>
    <${Problem} error=${error} again=${again} />
    ${rows.length
      ? html`<${Wide}><table><thead><tr><th>Day (UTC)</th><th>Service</th><th>Jobs or sessions</th><th>Audio</th><th><span class="unseen">More</span></th></tr></thead><tbody>
          ${rows.toReversed().map((row) => html`<tr><td>${row.day}</td><td>${tagName(row.service)}</td><td>${row.jobs}</td><td>${lengthInWords(row.seconds)}</td><td><meter min="0" max=${most} value=${row.seconds} aria-hidden="true"></meter></td></tr>`)}
        </tbody></table><//>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">No usage in these days.</p>`}
  </section>`;
}
