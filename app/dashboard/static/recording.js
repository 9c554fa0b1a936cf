// A recording of the microphone in the making.
import { html, useEffect, useRef, useState } from "./lib.js";
import { NO_MICROPHONE, decibels, openMicrophone } from "./microphone.js";

/**
 * {level, seconds, begin, finish}: `level` is null while nothing is recorded. `onDone(blocks)` gets what was recorded,
 * after `finish()` or `longest` seconds; `onError(error)` gets why nothing is.
 */
export function useRecording({ longest, onDone, onError }) {
  const [state, set] = useState(null);
  const open = useRef(null);
  const blocks = useRef([]);
  const left = useRef(false);
  const opening = useRef(false);
  const close = () => {
    const microphone = open.current;
    open.current = null;
    microphone?.close();
    return microphone;
  };
  useEffect(() => () => {
    left.current = true;
    close();
  }, []);
  const finish = () => {
    const microphone = close();
    if (!microphone) return;
    set(null);
    onDone([...blocks.current, microphone.flush()]);
  };
  const begin = async () => {
    if (opening.current) return; // A second click while the browser asks for the microphone.
    opening.current = true;
    blocks.current = [];
    onError(null);
    try {
      open.current = await openMicrophone((block, rms) => {
        blocks.current.push(block);
        set({ level: decibels(rms), seconds: blocks.current.length / 2 });
      });
      if (left.current) close();
      else set({ level: -100, seconds: 0 });
    } catch (error) {
      onError(error);
    } finally {
      opening.current = false;
    }
  };
  const { level, seconds } = state ?? { level: null, seconds: 0 };
  // The microphone knows the `finish` of its beginning; this one is of the newest drawing.
  useEffect(() => { if (seconds >= longest) finish(); }, [seconds]);
  return { level, seconds, begin, finish };
}

/** Why there is no microphone, where there is none. */
export function NoMicrophone() {
  return NO_MICROPHONE ? html`<p class="hint">${NO_MICROPHONE}</p>` : null;
}
