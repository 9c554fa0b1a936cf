// Registered voices: list, enrol, test, remove.
import { clock, html, lengthInWords, useState, when } from "../lib.js";
import { request } from "../api.js";
import { FivePrompts } from "../five-prompts.js";
import { Problem, State, Sure, Table, useLoaded } from "../parts.js";
import { VoiceInput } from "../voice-input.js";

/** The data of an answer in the speakers' envelope, whose errors come with status 200. */
async function ask(method, path, options = {}) {
  const answer = await (await request(method, path, { as: "organization", ...options })).json();
  if (answer.error) throw new Error(answer.error);
  return answer.data;
}

function form(file, fileName, fields = {}) {
  const made = new FormData();
  for (const [name, value] of Object.entries(fields)) made.append(name, value);
  made.append("file", file, fileName);
  return made;
}

/** The name that people read, which may be anything. */
const shownName = (one) => one.display_name ?? one.speaker;

/** The name of the interface, letters A to Z, digits and underscores, for one that people read; no other speaker has it. */
function plainName(shown, speakers) {
  const known = speakers.find((one) => shownName(one) === shown);
  if (known) return known.speaker;
  const letters = shown.normalize("NFKD").replaceAll("ß", "ss").replace(/\p{M}/gu, "").replace(/[^A-Za-z0-9]+/g, "_").replace(/^_+|_+$/g, "");
  const plain = (/^[A-Za-z0-9_]+$/.test(shown) ? shown : letters || "voice").slice(0, 90);
  const taken = new Set(speakers.map((one) => one.speaker));
  let free = plain;
  for (let number = 2; taken.has(free); number++) free = `${plain}_${number}`;
  return free;
}

export default function Speakers() {
  const { value, error, loading, again } = useLoaded((signal) => ask("GET", "/api/v2/speakers", { signal }), []);
  const [sure, setSure] = useState(null);
  const [state, setState] = useState({});
  const speakers = value ?? [];
  const change = async (method, path, told) => {
    setSure(null);
    setState({ busy: true });
    try {
      setState({ told: told(await ask(method, path)) });
      again();
    } catch (refused) {
      setState({ error: refused });
    }
  };
  const remove = (one) => change("DELETE", `/api/v2/speaker?speaker=${encodeURIComponent(one.speaker)}`, () => `${shownName(one)} was removed.`);
  const outdated = speakers.filter((one) => !one.is_compatible).map((one) => one.speaker);
  const reEnrol = async (names) => {
    setState({ busy: true });
    const told = [];
    try {
      for (const name of names) {
        const { done, left } = await ask("POST", `/api/v2/speaker/re-enroll?speaker=${encodeURIComponent(name)}`);
        told.push(left
          ? `${done} samples of ${name} fit the model now; ${left} do not, because their recordings were not kept: record new ones.`
          : `All ${done} samples of ${name} fit the model now.`);
      }
      setState({ told: told.join(" ") });
    } catch (refused) {
      setState({ told: told.join(" "), error: refused });
    }
    again();
  };
  return html`<${Problem} error=${error ?? state.error} again=${error && again} />
    ${state.told ? html`<p role="status">${state.told}</p>` : null}
    ${outdated.length
      ? html`<div class="problem"><p>The voice model has changed: ${outdated.length} of ${speakers.length} registered voices were made with another one and are not recognised. Re-enrol voices whose recordings were kept; record the others again.</p>
          <p><button disabled=${state.busy} onClick=${() => reEnrol(outdated)}>Re-enrol all</button></p></div>`
      : null}
    ${speakers.length
      ? html`<section class="card"><h2>Registered voices</h2><${Table} label="Registered voices" head=${["Name", "Samples", "Fit the model", html`<span class="unseen">Change</span>`, "Added"]}>
          ${speakers.map((one) => html`<tr key=${one.speaker}><th scope="row">${shownName(one)}${one.display_name ? html`<small>${one.speaker}</small>` : null}</th><td>${one.samples}, ${lengthInWords(one.total_length)}</td>
            <td>${one.is_compatible ? html`<${State} state="good">yes<//>` : html`<${State} state="bad">no: another model made them, so the voice is not recognised<//> <button disabled=${state.busy} aria-label=${`Re-enrol ${shownName(one)}`} onClick=${() => reEnrol([one.speaker])}>Re-enrol</button>`}</td>
            <td><button class="danger quiet" aria-label=${`Remove ${shownName(one)}`} onClick=${() => setSure(one)}>Remove</button></td><td>${when(one.created_at)}</td></tr>`)}<//></section>`
      : loading ? html`<p class="empty" role="status">Loading…</p>` : error ? null : html`<p class="empty">Nobody is registered yet. Transcripts name registered voices.</p>`}
    <div class="columns"><${Enrol} speakers=${speakers} onDone=${again} /><${Test} speakers=${speakers} /></div>
    ${sure ? html`<${Sure} question=${`Remove ${shownName(sure)}?`} action="Remove" onYes=${() => remove(sure)} onNo=${() => setSure(null)}><p>Their voice is deleted, and new transcripts do not name them.</p><//>` : null}`;
}

function Enrol({ speakers, onDone }) {
  const [typed, setName] = useState("");
  const [state, setState] = useState({});
  const name = typed.trim();
  const plain = plainName(name, speakers);
  const there = speakers.some((one) => one.speaker === plain);
  const register = async (file, fileName) => {
    await ask("POST", "/api/v2/voice", { body: form(file, fileName, { speaker: plain }) });
    if (!there && plain !== name) await ask("PATCH", `/api/v2/speaker?speaker=${plain}`, { body: { display_name: name } });
  };
  const sendFile = async (file, fileName) => {
    setState({ busy: true });
    try {
      await register(file, fileName);
      setState({ done: `Added to ${name}.` });
      onDone();
    } catch (error) {
      setState({ error });
    }
  };
  return html`<section class="card"><h2>Enrol a voice</h2>
    <label>Name <input value=${typed} maxlength="100" placeholder="Anna" aria-describedby="name-rule" onInput=${(event) => setName(event.target.value)} /></label>
    <p class="hint" id="name-rule">${there ? `${name} is registered: what you record is added.` : name && plain !== name ? html`Programs know this voice as <code>${plain}</code>.` : "Any name, as people write it."}</p>
    <h3>Read five pairs of sentences</h3>
    <${FivePrompts} name=${name} send=${register} onDone=${() => { setState({ done: `${name} is registered with five samples.` }); onDone(); }} />
    <h3>Or a recording</h3>
    <p class="hint">A few seconds of this voice alone. More recordings, on other days and microphones, make it better.</p>
    <${VoiceInput} disabled=${!name || state.busy} onVoice=${sendFile} onError=${(error) => setState({ error })} />
    ${state.busy ? html`<p role="status">Listening to it…</p>` : null}
    ${state.done ? html`<p role="status">${state.done}</p>` : null}
    <${Problem} error=${state.error} /></section>`;
}

function Test({ speakers }) {
  const [state, setState] = useState({});
  const known = new Map(speakers.map((one) => [one.speaker, shownName(one)]));
  const send = async (file, name) => {
    setState({ busy: true });
    try {
      setState({ data: await ask("POST", "/api/v2/recognition", { body: form(file, name) }) });
    } catch (error) {
      setState({ error });
    }
  };
  const turns = state.data?.transcription ?? [];
  return html`<section class="card"><h2>Who is this?</h2><p>Test a recording against the registered voices.</p>
    <${VoiceInput} disabled=${state.busy} onVoice=${send} onError=${(error) => setState({ error })} />
    ${state.busy ? html`<p role="status">Listening to it…</p>` : null}
    ${state.data ? (turns.length ? html`<ul class="turns">${turns.map((turn) => html`<li><span class="place">${clock(turn.first_word_start_msec / 1000, 1)}</span><span><strong>${known.get(turn.speaker_name) ?? turn.speaker_name}</strong> <span class="hint">(${turn.speaker_score.toFixed(2)})</span> ${turn.transcript}</span></li>`)}</ul>
      <p class="hint">In brackets: the similarity to the nearest registered voice, from -1 to 1 (the same).</p>` : html`<p class="empty">Nobody speaks.</p>`) : null}
    <${Problem} error=${state.error} /></section>`;
}
