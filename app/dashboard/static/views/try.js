// A file, a recording, or the microphone as it is heard.
import { clock, html, useEffect, useState } from "../lib.js";
import { Refused, key, onKeys, upload } from "../api.js";
import { NO_MICROPHONE, askToListen, wav } from "../microphone.js";
import { Problem, Progress } from "../problem.js";
import { NoMicrophone, useRecording } from "../recording.js";

const LONGEST_SECONDS = 3600;
const SERVICES = [
  ["sound_event_detection", "Sounds", "what is heard, and when"],
  ["speech_analysis", "Speech", "who says what"],
  ["caption", "Summary", "what happens, in a few sentences; needs both"],
];

/** Seconds of a file as the browser sees it, null where it cannot read it: the service may still. */
function lengthOf(file) {
  return new Promise((resolve) => {
    const url = URL.createObjectURL(file);
    const audio = new Audio();
    const done = (seconds) => {
      URL.revokeObjectURL(url);
      resolve(Number.isFinite(seconds) ? seconds : null);
    };
    audio.onloadedmetadata = () => done(audio.duration);
    audio.onerror = () => done(null);
    setTimeout(() => done(null), 3000);
    audio.preload = "metadata";
    audio.src = url;
  });
}

/**
 * An upload goes on while other views are open: {sending: {name, value}, sent: {name, job}, error, stop}.
 * @type {any}
 */
let state = {};
let unanswered = { what: "", name: "" };
/** Draws the view while it is open. */
let draw = /** @type {(() => void) | null} */ (null);

function set(next) {
  state = next;
  draw?.();
}

/** Have the browser ask before it closes the page. */
const ask = (event) => event.preventDefault();

// What was sent is nothing for who signs in next.
onKeys(() => key("project") || set({}));

async function send(file, name, options) {
  const stop = new AbortController();
  const forget = onKeys(() => key("project") || stop.abort()); // Signing out ends it.
  addEventListener("beforeunload", ask);
  const progress = (value) => set({ sending: { name, value }, stop });
  progress(0);
  try {
    const seconds = await lengthOf(file);
    if (seconds > LONGEST_SECONDS)
      throw new Error(`${name} is ${clock(seconds)} long. The dashboard takes an hour at most; nothing was sent. The interface itself has no such limit.`);
    stop.signal.throwIfAborted();
    const form = new FormData();
    form.append("options", JSON.stringify(options));
    form.append("audio", file, name);
    // If no answer came, the job may exist: the same recording sent again is the same job.
    const what = JSON.stringify([name, file.size, file.lastModified, options]);
    if (unanswered.what !== what) unanswered = { what, name: crypto.getRandomValues(new Uint32Array(4)).join("-") };
    const { job_id: job } = await upload("/api/v1/analyze_file", form, progress, stop.signal, unanswered.name);
    unanswered.what = "";
    if (draw) location.hash = `#/jobs/${job}`;
    set(draw ? {} : { sent: { name, job } });
  } catch (error) {
    if (error instanceof Refused && error.status !== 401) error.message = `${name}: ${error.message}`;
    set(error.name === "AbortError" ? {} : { error });
  }
  removeEventListener("beforeunload", ask);
  forget();
}

export default function TryIt() {
  const [wanted, setWanted] = useState({ sound_event_detection: true, speech_analysis: true, caption: true });
  const [over, setOver] = useState(false);
  const [, redraw] = useState(0);
  useEffect(() => {
    draw = () => redraw((count) => count + 1);
    return () => {
      draw = null;
      if (!state.sending) set({});
    };
  }, []);
  const { sending, sent, error, stop } = state;
  const setError = (problem) => set({ error: problem });

  const options = {
    sound_event_detection: wanted.sound_event_detection,
    speech_analysis: wanted.speech_analysis,
    audio_insights: wanted.caption,
    caption: wanted.caption,
    word_times: wanted.speech_analysis,
    speaker_profile: wanted.speech_analysis,
  };

  const dropped = (event) => {
    event.preventDefault();
    setOver(false);
    const { files } = event.dataTransfer;
    if (none) setError(new Error("Nothing was sent: choose what to look for first."));
    else if (files.length > 1) setError(new Error("Nothing was sent: drop one recording at a time."));
    else if (files.length) send(files[0], files[0].name, options);
  };
  const none = !Object.values(wanted).some(Boolean);

  return html`
    <fieldset class="services"><legend>What to look for</legend>
      ${SERVICES.map(([name, label, what]) => html`<label class="choice">
        <input type="checkbox" checked=${wanted[name]} disabled=${Boolean(sending)} onChange=${(event) => {
          const next = { ...wanted, [name]: event.target.checked };
          if (name === "caption" && next.caption) next.sound_event_detection = next.speech_analysis = true;
          if (name !== "caption" && !event.target.checked) next.caption = false;
          setWanted(next);
          set({ sent });
        }} /><span>${label}<small>${what}</small></span></label>`)}
    </fieldset>
    <${Problem} error=${error} />
    ${sent ? html`<p role="status">${sent.name} was sent. <a href=${`#/jobs/${sent.job}`}>See what is in it</a></p>` : null}
    ${sending
      ? html`<div class="card" role="status"><${Progress} label=${`Sending ${sending.name}`} value=${sending.value} />
          <button onClick=${() => stop.abort()}>Stop</button>
          <p class="hint">It goes on while you look at other pages, but keep this tab open.</p></div>`
      : html`<div class="grid">
          <label class=${`drop ${over ? "over" : ""}`} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
            <strong>Drop a recording here</strong><span>or choose a file: WAV, MP3, Ogg, FLAC and others, an hour at most</span>
            <input type="file" accept="audio/*,video/*" disabled=${none} onChange=${(event) => { const file = event.target.files[0]; if (file) send(file, file.name, options); event.target.value = ""; }} />
          </label>
          <${Recorder} disabled=${none} onDone=${(blocks) => send(wav(blocks), `recording-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.wav`, options)} onError=${setError} />
          <div class="card"><h2>Listen live</h2><p>Stream the microphone to this service, and to nobody else, and see sounds as they are heard.</p>${NO_MICROPHONE ? html`<${NoMicrophone} />` : html`<a class="button" href="#/live/microphone" onClick=${askToListen}>Listen with the microphone</a>`}</div>
        </div>`}
    ${none ? html`<p class="hint">Choose at least one thing to look for.</p>` : null}`;
}

/** Records until it is stopped, an hour at most. */
function Recorder({ disabled, onDone, onError }) {
  const { level, seconds, begin, finish } = useRecording({ longest: LONGEST_SECONDS, onDone, onError });
  return html`<div class="card"><h2>Record</h2>
    ${level === null
      ? html`<p>Record from the microphone, then see what is in it.</p><${NoMicrophone} /><button disabled=${disabled || NO_MICROPHONE} onClick=${begin}>Record</button>`
      : html`<p role="timer">${clock(seconds)}</p><meter min="-60" max="0" value=${level} aria-label="Level in dBFS"></meter><p><button class="main" disabled=${disabled} onClick=${finish}>Stop and analyse</button></p>`}
  </div>`;
}
