// A voice from the microphone, or from a file.
import { clock, html } from "./lib.js";
import { NO_MICROPHONE, wav } from "./microphone.js";
import { NoMicrophone, useRecording } from "./recording.js";

const LONGEST_SECONDS = 300;

/** Two buttons; `onVoice(file, name)` gets the recording, `onError(error)` why there is none. */
export function VoiceInput({ disabled, onVoice, onError }) {
  const { level, seconds, begin, finish } = useRecording({ longest: LONGEST_SECONDS, onDone: (blocks) => onVoice(wav(blocks), "voice.wav"), onError });
  if (level !== null)
    return html`<p class="line"><meter min="-60" max="0" value=${level} aria-label="Level in dBFS"></meter> <span class="number" role="timer">${clock(Math.floor(seconds))}</span> <button class="main" onClick=${finish}>Done</button></p>`;
  return html`<p class="actions"><button disabled=${disabled || NO_MICROPHONE} onClick=${begin}>Record</button>
    <label class=${`button ${disabled ? "off" : ""}`}>From a file<input class="hidden" type="file" accept="audio/*" disabled=${disabled} onChange=${(event) => {
      const file = event.target.files[0];
      if (file) onVoice(file, file.name);
      event.target.value = "";
    }} /></label></p><${NoMicrophone} />`;
}
