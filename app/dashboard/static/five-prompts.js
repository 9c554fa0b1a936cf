// Enrolling a voice: five pairs of sentences, each recorded, judged for its level, and sent as a sample.
import { clock, html, useEffect, useState } from "./lib.js";
import { NO_MICROPHONE, decibels, rms, wav } from "./microphone.js";
import { Problem, State } from "./parts.js";
import { NoMicrophone, useRecording } from "./recording.js";

/** From the Harvard sentences (IEEE, 1969), which have the sounds of English as often as speech has them. */
const PROMPTS = [
  "The birch canoe slid on the smooth planks. Glue the sheet to the dark blue background.",
  "It's easy to tell the depth of a well. These days a chicken leg is a rare dish.",
  "Rice is often served in round bowls. The juice of lemons makes fine punch.",
  "The box was thrown beside the parked truck. The hogs were fed chopped corn and garbage.",
  "Four hours of steady work faced us. A large size in stockings is hard to sell.",
];
const SHORTEST_SECONDS = 2;
const LONGEST_SECONDS = 30;
/** dBFS of the loudest half second below which a voice is too quiet. */
const QUIET = -40;
/** Share of samples at the end of the scale from which a recording is clipped. */
const CLIPPED = 0.001;

/** What is wrong with a recording in blocks of half a second, null where nothing is. */
export function faultOf(blocks) {
  const count = blocks.reduce((sum, block) => sum + block.length, 0);
  const clipped = blocks.reduce((sum, block) => sum + block.reduce((most, sample) => most + (Math.abs(sample) >= 32_700), 0), 0);
  if (count < SHORTEST_SECONDS * 16_000) return "too short: read both sentences";
  if (Math.max(...blocks.map((block) => decibels(rms(block)))) < QUIET) return "too quiet: come nearer to the microphone";
  return clipped > CLIPPED * count ? "clipped: move away from the microphone, or turn it down" : null;
}

/** Five recordings for `name`; `send(file, fileName)` registers one, `onDone` is called when all are. */
export function FivePrompts({ name, send, onDone }) {
  const [takes, setTakes] = useState(PROMPTS.map(() => null));
  const [at, setAt] = useState(0);
  const [sent, setSent] = useState(null);
  const [error, setError] = useState(null);
  const done = (blocks) => {
    const fault = faultOf(blocks);
    const next = takes.with(at, { file: wav(blocks), seconds: blocks.reduce((sum, block) => sum + block.length, 0) / 16_000, fault });
    setTakes(next);
    if (!fault) setAt(next.findIndex((take) => !take || take.fault));
  };
  const { level, seconds, begin, finish } = useRecording({ longest: LONGEST_SECONDS, onDone: done, onError: setError });
  // A new name needs every sample sent again.
  useEffect(() => setTakes((before) => before.map((take) => take && { ...take, sent: false })), [name]);
  const register = async () => {
    setError(null);
    // What was registered already is not sent twice.
    const rest = [...takes];
    try {
      for (let number = 0; number < rest.length; number++) {
        if (rest[number].sent) continue;
        setSent(number);
        await send(rest[number].file, `sentence-${number + 1}.wav`);
        rest[number] = { ...rest[number], sent: true };
      }
      setTakes(PROMPTS.map(() => null));
      setAt(0);
      onDone();
    } catch (problem) {
      setTakes(rest);
      setError(problem);
    }
    setSent(null);
  };
  const complete = takes.every((take) => take && !take.fault);
  return html`<div>
    ${sent !== null
      ? html`<p role="status">Registering pair ${sent + 1} of ${PROMPTS.length}…</p>`
      : complete
        ? html`<p>All five are done.</p><p class="actions"><button class="main" onClick=${register}>Register ${name}</button></p>`
        : html`<p class="hint">Read it aloud as you speak every day; in another language any two sentences will do.</p>
            <blockquote aria-live="polite"><strong>${at + 1} of ${PROMPTS.length}</strong> ${PROMPTS[at]}</blockquote>
            ${level === null
              ? html`<p class="actions"><button class="main" disabled=${!name || NO_MICROPHONE} onClick=${begin}>${takes[at] ? `Record pair ${at + 1} again` : `Record pair ${at + 1}`}</button></p>${name ? null : html`<p class="hint">Enter a name first.</p>`}<${NoMicrophone} />`
              : html`<p class="line"><meter min="-60" max="0" low=${QUIET} value=${level} aria-label="Level in dBFS"></meter> <span class="number" role="timer">${clock(Math.floor(seconds))}</span> <button class="main" onClick=${finish}>Done</button></p>`}`}
    <ol class="takes">${takes.map((take, number) => html`<li aria-current=${number === at && !complete ? "step" : null}>
      ${take ? html`<${State} state=${take.fault ? "bad" : "good"}>${take.fault ?? (take.sent ? "registered" : `${take.seconds.toFixed(1)} s, good`)}<//>` : html`<span class="hint">not yet</span>`}
      ${take && !take.sent && level === null && sent === null ? html`<button class="quiet" aria-label=${`Record pair ${number + 1} anew`} onClick=${() => { setTakes(takes.with(number, null)); setAt(number); }}>Anew</button>` : null}</li>`)}</ol>
    <${Problem} error=${error} /></div>`;
}
