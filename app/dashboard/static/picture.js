// How a recording looks: spectrogram and waveform of the stretch that is shown, as the service draws them.
import { useEffect, useState } from "./lib.js";
import { RETRY, Refused, request } from "./api.js";

/** Widest picture that the service makes. */
const COLUMNS = 2048;
/** A zoom is over when nothing has changed for so many milliseconds. */
const REST = 150;

/**
 * {state, error, seconds, layers}: state is "drawing", "there", "none" (the audio is not kept) or "failed". `layers` has the whole
 * recording, and above it the stretch {start, end} that is shown: each {start, end, image, peaks, loudest}.
 */
export function usePicture(job, { start, end }) {
  const [picture, set] = useState({ state: "drawing", layers: [] });
  const [turn, setTurn] = useState(0);
  const failed = (error) => set((before) => ({ ...before, state: error.status === 404 ? "none" : "failed", error }));
  useEffect(() => {
    if (!(picture.error instanceof TypeError)) return undefined;
    const timer = setTimeout(() => setTurn((count) => count + 1), RETRY);
    return () => clearTimeout(timer);
  }, [picture.error]);
  useEffect(() => {
    const stop = new AbortController();
    set({ state: "drawing", layers: [] });
    layer(job, "", stop.signal).then((whole) => set({ state: "there", seconds: whole.end, layers: [whole] }), (error) => stop.signal.aborted || failed(error));
    return () => stop.abort();
  }, [job, turn]);
  const { seconds } = picture;
  useEffect(() => {
    if (!seconds) return undefined;
    const all = start <= 0 && end >= seconds;
    if (all) {
      set((before) => ({ ...before, layers: before.layers.slice(0, 1) }));
      return undefined;
    }
    const stop = new AbortController();
    const rest = setTimeout(() => {
      const query = `&start=${start.toFixed(3)}&end=${Math.max(end, start + 0.01).toFixed(3)}`;
      layer(job, query, stop.signal, { start, end }).then(
        (near) => set((before) => ({ ...before, layers: [before.layers[0], near] })),
        (error) => stop.signal.aborted || failed(error),
      );
    }, REST);
    return () => {
      clearTimeout(rest);
      stop.abort();
    };
  }, [job, seconds, start, end]);
  return picture;
}

async function layer(job, query, signal, stretch) {
  const spectrogram = await drawn(`/api/v1/jobs/${job}/spectrogram?columns=${COLUMNS}${query}`, signal);
  const waveform = await drawn(`/api/v1/jobs/${job}/waveform?points=${COLUMNS}${query}`, signal);
  const image = await levels(await spectrogram.blob());
  const peaks = await waveform.json();
  const loudest = peaks.data.reduce((most, value) => Math.max(most, Math.abs(value)), 8);
  return { start: 0, end: Number(spectrogram.headers.get("earshot-seconds")), ...stretch, image, peaks, loudest };
}

/** The answer, asked for again while the picture is being drawn. */
async function drawn(path, signal) {
  for (;;) {
    try {
      return await request("GET", path, { signal });
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 503) throw error;
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(0.5, error.retryAfter)));
      signal.throwIfAborted();
    }
  }
}

/** A picture's bytes of grey as {width, height, values}, and between which of them there is something to see. */
async function levels(blob) {
  const bitmap = await createImageBitmap(blob);
  const { width, height } = bitmap;
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(width, height).getContext("2d"));
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const { data } = context.getImageData(0, 0, width, height);
  const values = new Uint8Array(width * height);
  const counts = new Uint32Array(256);
  for (let at = 0; at < values.length; at++) counts[(values[at] = data[4 * at])] += 1;
  return { width, height, values, ...contrast(counts) };
}

/** Between which values there is something to see, by how often each occurs. */
export function contrast(counts) {
  return { low: share(counts, 0.1), high: share(counts, 0.999) };
}

/** The least value that at most a share of those above 0 lies below. */
function share(counts, part) {
  let left = (counts.reduce((sum, count) => sum + count, 0) - counts[0]) * part;
  for (let value = 1; value < 256; value++) if ((left -= counts[value]) <= 0) return value;
  return 255;
}

/** The colours of what is soft, louder and loudest, each [red, green, blue], as the page has them now. */
export function themeColours(element) {
  const style = getComputedStyle(element);
  const parts = (text) => [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16));
  return ["--soft", "--accent", "--loud"].map((name) => parts(style.getPropertyValue(name).trim()));
}

/** The pixels of the 256 values, between three colours. */
export function ramp({ low, high }, colours) {
  return Uint32Array.from({ length: 256 }, (_, value) => {
    const place = 2 * Math.min(1, Math.max(0, (value - low) / Math.max(1, high - low)));
    const [from, to] = place < 1 ? colours : colours.slice(1);
    const [red, green, blue] = from.map((one, i) => one + (to[i] - one) * (place % 1 || (place === 2 ? 1 : 0)));
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

/** A canvas of a picture, with the contrast and the colours of `ramp`. */
export function tinted({ width, height, values }, shown, colours) {
  const canvas = new OffscreenCanvas(width, height);
  const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(width, height);
  const table = ramp(shown, colours);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < values.length; at++) pixels[at] = table[values[at]];
  context.putImageData(image, 0, 0);
  return canvas;
}
