// A picture that moves to the left as sound comes: each column is drawn once, the rest is shifted.
import { html, useEffect, useRef } from "./lib.js";

const BANDS = 64;
const COLUMN_SECONDS = 0.05;
/** Decibels below full scale that are black. */
const FLOOR = 100;

/** Colours of the 256 values of a band, as 32-bit pixels: black, violet, red, yellow, white. */
const COLOURS = (() => {
  const stops = [[0, 0, 4], [66, 10, 104], [147, 38, 103], [221, 81, 58], [252, 165, 10], [252, 255, 164]];
  const pixels = new Uint8ClampedArray(256 * 4);
  for (let value = 0; value < 256; value++) {
    const place = Math.max(0, 1 - (255 - value) / (2 * FLOOR)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    for (let part = 0; part < 3; part++) pixels[4 * value + part] = stops[low][part] + (place - low) * (stops[low + 1][part] - stops[low][part]);
    pixels[4 * value + 3] = 255;
  }
  return new Uint32Array(pixels.buffer);
})();

/** Draws strips {start_time, columns} that `heard` gathers, as long as it is there. */
export function Spectrogram({ heard }) {
  const canvas = useRef(null);
  useEffect(() => {
    const picture = new Picture(canvas.current);
    const sized = new ResizeObserver(() => picture.resize());
    sized.observe(canvas.current);
    let frame = requestAnimationFrame(function draw() {
      picture.take(heard.strips.splice(0));
      picture.draw();
      frame = requestAnimationFrame(draw);
    });
    return () => {
      cancelAnimationFrame(frame);
      sized.disconnect();
    };
  }, [heard]);
  return html`<canvas class="spectrogram" ref=${canvas} width="600" height=${BANDS} role="img" aria-label="Spectrogram of the last seconds, low sounds below; what was heard is in the table of events"></canvas>`;
}

class Picture {
  /** Columns that wait: each BANDS bytes. */
  waiting = [];
  /** Number of the column that comes next, since the session began. */
  /** @type {number | null} */
  next = null;

  constructor(element) {
    this.element = element;
    this.context = element.getContext("2d", { alpha: false });
    this.frames = 0;
  }

  take(strips) {
    for (const { start_time, columns } of strips) {
      const bytes = Uint8Array.from(atob(columns), (letter) => letter.charCodeAt(0));
      const first = Math.round(start_time / COLUMN_SECONDS);
      const gap = this.next === null ? 0 : first - this.next;
      // Time of which there is no picture stays dark.
      for (let dark = 0; dark < Math.min(gap, this.element.width); dark++) this.waiting.push(null);
      for (let at = 0; at < bytes.length; at += BANDS) this.waiting.push(bytes.subarray(at, at + BANDS));
      this.next = first + bytes.length / BANDS;
    }
    if (this.waiting.length > this.element.width) this.waiting.splice(0, this.waiting.length - this.element.width);
  }

  /** Move by as much as lets half a second pass in half a second, and by more where more waits. */
  draw() {
    this.frames += 1;
    if (!this.waiting.length || (this.waiting.length < 30 && this.frames % 3)) return;
    const columns = this.waiting.splice(0, Math.max(1, Math.ceil(this.waiting.length / 20)));
    const { element, context } = this;
    const count = Math.min(columns.length, element.width);
    context.drawImage(element, -count, 0);
    const image = context.createImageData(count, BANDS);
    const pixels = new Uint32Array(image.data.buffer);
    columns.slice(-count).forEach((column, x) => {
      for (let band = 0; band < BANDS; band++) pixels[(BANDS - 1 - band) * count + x] = COLOURS[column ? column[band] : 0];
    });
    context.putImageData(image, element.width - count, 0);
  }

  /** Take the width of the page; what is drawn stays at the right. */
  resize() {
    const width = Math.max(60, Math.min(2000, this.element.clientWidth));
    if (width === this.element.width) return;
    const before = document.createElement("canvas");
    before.width = this.element.width;
    before.height = BANDS;
    before.getContext("2d")?.drawImage(this.element, 0, 0);
    this.element.width = width;
    this.context.drawImage(before, width - before.width, 0);
  }
}
