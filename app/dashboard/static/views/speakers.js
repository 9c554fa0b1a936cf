// Registered voices: list, enrol, test, remove.
import { clock, html, lengthInWords, useState, when } from "../lib.js";
import { request } from "../api.js";
import { Problem, Sure, useLoaded } from "../parts.js";
import { VoiceInput } from "../voice-input.js";

const PROMPTS = [
  "Tell what you see when you look out of the window.",
  "Describe the way from your door to the next shop.",
  "Say what you had for breakfast, and what you would rather have had.",
  "Read the last message that you wrote, as if on the telephone.",
  "Count from twenty down to one, not too fast.",
];

/** The data of an answer in the speakers' envelope, whose errors come with status 200. */
async function ask(method, path, options = {}) {
  const answer = await (await request(method, path, { as: "organization", ...options })).json();
  if (answer.error) throw new Error(answer.error);
  return answer.data;
}

export default function Speakers() {
  const { value, error, loading, again } = useLoaded((signal) => ask("GET", "/api/v2/speakers", { signal }), []);
  const [sure, setSure] = useState(null);
  const [problem, setProblem] = useState(null);
  const speakers = value ?? [];
  const remove = async () => {
    setSure(null);
    try {
      await ask("DELETE", `/api/v2/speaker?speaker=${encodeURIComponent(sure)}`);
      again();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<${Problem} error=${error ?? problem} again=${error && again} />
    ${speakers.length
      ? html`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>Name</th><th>Samples</th><th>Fit the model</th><th>Added</th><th><span class="unseen">More</span></th></tr></thead><tbody>
          ${speakers.map((one) => html`<tr key=${one.speaker}><td>${one.speaker}</td><td>${one.samples}, ${lengthInWords(one.total_length)}</td>
            <td>${one.is_compatible ? "yes" : "no: enrol again"}</td><td>${when(one.created_at)}</td><td><button class="danger quiet" onClick=${() => setSure(one.speaker)}>Remove</button></td></tr>`)}
        </tbody></table></div>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">Nobody is registered yet. A voice that is registered is named in transcripts.</p>`}
    <div class="grid"><${Enrol} onDone=${again} /><${Test} /></div>
    ${sure ? html`<${Sure} question=${`Remove ${sure}?`} action="Remove" onYes=${remove} onNo=${() => setSure(null)}><p>Their voice is deleted, and no transcript names them from now on.</p><//>` : null}`;
}

function Enrol({ onDone }) {
  const [name, setName] = useState("");
  const [prompt, setPrompt] = useState(0);
  const [state, setState] = useState({});
  const send = async (file, fileName) => {
    setState({ busy: true });
    const form = new FormData();
    form.append("speaker", name);
    form.append("file", file, fileName);
    try {
      await ask("POST", "/api/v2/voice", { body: form });
      setState({ done: `Added to ${name}.` });
      setPrompt((number) => number + 1);
      onDone();
    } catch (error) {
      setState({ error });
    }
  };
  const good = /^[A-Za-z0-9_]+$/.test(name);
  return html`<div class="card"><h2>Enrol a voice</h2>
    <label>Name <input value=${name} pattern="[A-Za-z0-9_]+" placeholder="Anna" onInput=${(event) => setName(event.target.value)} /></label>
    <p class="hint">Letters, digits and underscores. Five recordings of ten seconds make a good voice.</p>
    <p>${prompt < PROMPTS.length ? html`<strong>${prompt + 1} of ${PROMPTS.length}</strong> ${PROMPTS[prompt]}` : "That is enough. More recordings, on other days and microphones, make it better still."}</p>
    <${VoiceInput} disabled=${!good || state.busy} onVoice=${send} onError=${(error) => setState({ error })} />
    ${state.busy ? html`<p role="status">Listening to it…</p>` : null}
    ${state.done ? html`<p role="status">${state.done}</p>` : null}
    <${Problem} error=${state.error} /></div>`;
}

function Test() {
  const [state, setState] = useState({});
  const send = async (file, name) => {
    setState({ busy: true });
    const form = new FormData();
    form.append("file", file, name);
    try {
      setState({ data: await ask("POST", "/api/v2/recognition", { body: form }) });
    } catch (error) {
      setState({ error });
    }
  };
  const turns = state.data?.transcription ?? [];
  return html`<div class="card"><h2>Who is this?</h2><p>Test a recording against the registered voices.</p>
    <${VoiceInput} disabled=${state.busy} onVoice=${send} onError=${(error) => setState({ error })} />
    ${state.busy ? html`<p role="status">Listening to it…</p>` : null}
    ${state.data ? (turns.length ? html`<ul>${turns.map((turn) => html`<li>${clock(turn.first_word_start_msec / 1000, 1)} <strong>${turn.speaker_name}</strong> (${turn.speaker_score.toFixed(2)}) ${turn.transcript}</li>`)}</ul>` : html`<p class="empty">Nobody speaks.</p>`) : null}
    <${Problem} error=${state.error} /></div>`;
}
