// A file, a recording, or the microphone as it is heard.
import { clock, html, useEffect, useRef, useState } from "../lib.js";
import { upload } from "../api.js";
import { NO_MICROPHONE, wav } from "../microphone.js";
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

export default function TryIt() {
  const [wanted, setWanted] = useState({ sound_event_detection: true, speech_analysis: true, caption: true });
  const [sending, setSending] = useState(null);
  const [error, setError] = useState(null);
  const [over, setOver] = useState(false);
  const stop = useRef(null);
  const unanswered = useRef({ what: "", name: "" });
  useEffect(() => () => stop.current?.abort(), []);

  const options = {
    sound_event_detection: wanted.sound_event_detection,
    speech_analysis: wanted.speech_analysis,
    audio_insights: wanted.caption,
    caption: wanted.caption,
    word_times: wanted.speech_analysis,
    speaker_profile: wanted.speech_analysis,
  };

  async function send(file, name) {
    setError(null);
    const seconds = await lengthOf(file);
    if (seconds > LONGEST_SECONDS) {
      setError(new Error(`${name} is ${clock(seconds)} long. The dashboard takes an hour at most; nothing was sent. The interface itself has no such limit.`));
      return;
    }
    const form = new FormData();
    form.append("options", JSON.stringify(options));
    form.append("audio", file, name);
    // If no answer came, the job may exist: the same recording sent again is the same job.
    const what = JSON.stringify([name, file.size, file.lastModified, options]);
    if (unanswered.current.what !== what) unanswered.current = { what, name: crypto.getRandomValues(new Uint32Array(4)).join("-") };
    stop.current = new AbortController();
    setSending({ name, value: 0 });
    try {
      const job = await upload("/api/v1/analyze_file", form, (value) => setSending({ name, value }), stop.current.signal, unanswered.current.name);
      unanswered.current.what = "";
      location.hash = `#/jobs/${job.job_id}`;
    } catch (problem) {
      if (problem.name !== "AbortError") setError(problem);
    }
    setSending(null);
  }

  const dropped = (event) => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer.files[0];
    if (file) send(file, file.name);
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
        }} /><span>${label}<small>${what}</small></span></label>`)}
    </fieldset>
    <${Problem} error=${error} />
    ${sending
      ? html`<div class="card" role="status"><${Progress} label=${`Sending ${sending.name}`} value=${sending.value} />
          <button onClick=${() => stop.current.abort()}>Stop</button></div>`
      : html`<div class="grid">
          <label class=${`drop ${over ? "over" : ""}`} onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
            <strong>Drop a recording here</strong><span>or choose a file: WAV, MP3, Ogg, FLAC and others, an hour at most</span>
            <input type="file" accept="audio/*,video/*" disabled=${none} onChange=${(event) => { const file = event.target.files[0]; if (file) send(file, file.name); event.target.value = ""; }} />
          </label>
          <${Recorder} disabled=${none} onDone=${(blocks) => send(wav(blocks), `recording-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.wav`)} onError=${setError} />
          <div class="card"><h2>Listen live</h2><p>Stream the microphone, and see sounds as they are heard.</p>${NO_MICROPHONE ? html`<${NoMicrophone} />` : html`<a class="button" href="#/live/microphone">Open the microphone</a>`}</div>
        </div>`}
    ${none ? html`<p class="hint">Choose at least one thing to look for.</p>` : null}`;
}

/** Records until it is stopped, an hour at most. */
function Recorder({ disabled, onDone, onError }) {
  const { level, seconds, begin, finish } = useRecording({ longest: LONGEST_SECONDS, onDone, onError });
  return html`<div class="card"><h2>Record</h2>
    ${level === null
      ? html`<p>Record from the microphone, then see what is in it.</p><${NoMicrophone} /><button disabled=${disabled || NO_MICROPHONE} onClick=${begin}>Record</button>`
      : html`<p role="timer">${clock(seconds)}</p><meter min="-60" max="0" value=${level} aria-label="Level in dBFS"></meter><p><button class="main" onClick=${finish}>Stop and analyse</button></p>`}
  </div>`;
}
