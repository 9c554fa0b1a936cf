// A voice from the microphone, or from a file.
import { html, useEffect, useRef, useState } from "./lib.js";
import { openMicrophone, decibels, wav } from "./microphone.js";

/** Two buttons; `onVoice(file, name)` gets the recording, `onError(error)` why there is none. */
export function VoiceInput({ disabled, onVoice, onError }) {
  const open = useRef(null);
  const blocks = useRef([]);
  const [level, setLevel] = useState(null);
  useEffect(() => () => open.current?.close(), []);
  const begin = async () => {
    blocks.current = [];
    try {
      open.current = await openMicrophone((block, rms) => {
        blocks.current.push(block);
        setLevel(decibels(rms));
      });
      setLevel(-100);
    } catch (error) {
      onError(new Error(`The microphone cannot be used: ${error.message}`));
    }
  };
  const finish = () => {
    const microphone = open.current;
    open.current = null;
    microphone.close();
    setLevel(null);
    onVoice(wav([...blocks.current, microphone.flush()]), "voice.wav");
  };
  if (level !== null)
    return html`<meter min="-60" max="0" value=${level} aria-label="Level in dBFS"></meter><p><button class="main" onClick=${finish}>Done</button></p>`;
  return html`<p class="actions"><button disabled=${disabled} onClick=${begin}>Record</button>
    <label class=${`button ${disabled ? "off" : ""}`}>From a file<input class="hidden" type="file" accept="audio/*" disabled=${disabled} onChange=${(event) => {
      const file = event.target.files[0];
      if (file) onVoice(file, file.name);
      event.target.value = "";
    }} /></label></p>`;
}
