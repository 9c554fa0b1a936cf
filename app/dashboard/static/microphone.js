// The microphone as blocks of 16-bit PCM at 16 kHz, in half seconds.

export const RATE = 16_000;
export const BLOCK = RATE / 2;

/** The link to the microphone's page is a request to listen, for so many milliseconds. */
const ASKED = 10_000;
let asked = -ASKED;

/** Note that the reader asked to listen, and goes to the page that does. */
export function askToListen() {
  asked = performance.now();
}

/** Whether the reader just asked to listen, once. */
export function takeAsked() {
  const recent = performance.now() - asked < ASKED;
  asked = -ASKED;
  return recent;
}

/** Why no microphone can be had at this address, "" if one can. */
export const NO_MICROPHONE = isSecureContext && navigator.mediaDevices ? "" : "Browsers allow the microphone only over HTTPS or at localhost.";

const WHY = {
  NotAllowedError: "The microphone was refused. Allow it for this page in the browser, then try again.",
  NotFoundError: "There is no microphone.",
};

async function allowed() {
  if (NO_MICROPHONE) throw new Error(NO_MICROPHONE);
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
  } catch (error) {
    throw new Error(WHY[error.name] ?? `The microphone cannot be used: ${error.message}`, { cause: error });
  }
}

/**
 * Open the microphone; `onBlock(Int16Array, rms)` gets half a second at a time.
 * Returns {name, close, flush}: `flush()` gives what is left of the last half second.
 */
export async function openMicrophone(onBlock) {
  const media = await allowed();
  // The browser resamples for a context of this rate.
  const context = new AudioContext({ sampleRate: RATE });
  const close = () => {
    for (const track of media.getTracks()) track.stop();
    return context.close();
  };
  try {
    await context.audioWorklet.addModule("worklet.js");
  } catch (error) {
    close();
    throw error;
  }
  const node = new AudioWorkletNode(context, "blocks");
  let block = new Int16Array(BLOCK);
  let filled = 0;
  node.port.onmessage = ({ data }) => {
    for (let at = 0; at < data.length; ) {
      const count = Math.min(data.length - at, BLOCK - filled);
      for (let i = 0; i < count; i++) block[filled + i] = Math.max(-32768, Math.min(32767, Math.round(data[at + i] * 32768)));
      filled += count;
      at += count;
      if (filled === BLOCK) {
        onBlock(block, rms(block));
        block = new Int16Array(BLOCK);
        filled = 0;
      }
    }
  };
  context.createMediaStreamSource(media).connect(node);
  return {
    name: media.getAudioTracks()[0].label,
    close() {
      // What is on its way still comes too late: it would look like the beginning of another recording.
      node.port.onmessage = null;
      return close();
    },
    flush: () => block.slice(0, filled),
  };
}

/** Root mean square of samples, 0 to 1. */
export function rms(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return samples.length ? Math.sqrt(sum / samples.length) / 32768 : 0;
}

/** dBFS of a root mean square; -100 is the floor. */
export function decibels(level) {
  return level > 1e-5 ? 20 * Math.log10(level) : -100;
}

/** 16-bit samples as a WAV file. */
export function wav(blocks) {
  const bytes = 2 * blocks.reduce((sum, block) => sum + block.length, 0);
  const head = new DataView(new ArrayBuffer(44));
  const ascii = (at, text) => [...text].forEach((letter, i) => head.setUint8(at + i, letter.charCodeAt(0)));
  ascii(0, "RIFF");
  head.setUint32(4, 36 + bytes, true);
  ascii(8, "WAVEfmt ");
  head.setUint32(16, 16, true);
  head.setUint16(20, 1, true);
  head.setUint16(22, 1, true);
  head.setUint32(24, RATE, true);
  head.setUint32(28, 2 * RATE, true);
  head.setUint16(32, 2, true);
  head.setUint16(34, 16, true);
  ascii(36, "data");
  head.setUint32(40, bytes, true);
  return new Blob([head, ...blocks], { type: "audio/wav" });
}
