// A picture that moves to the left as sound comes, in the colours and with the contrast of a recording's.
import { html, useEffect, useRef, useState } from "./lib.js";
import { contrast, ramp, themeColours } from "./picture.js";

const BANDS = 64;
const COLUMN_SECONDS = 0.05;
/** The least contrast, in half decibels: silence looks quiet. */
const LEAST = 100;

/** Draws strips {start_time, columns} that `heard` gathers, as long as it is there. */
export function Spectrogram({ heard }) {
  const canvas = useRef(null);
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const picture = new Picture(canvas.current);
    const sized = new ResizeObserver(() => setSeconds(Math.round(picture.resize() * COLUMN_SECONDS)));
    sized.observe(canvas.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => picture.paint();
    dark.addEventListener("change", repaint);
    let frame = requestAnimationFrame(function draw() {
      picture.take(heard.strips.splice(0));
      picture.draw();
      frame = requestAnimationFrame(draw);
    });
    return () => {
      cancelAnimationFrame(frame);
      sized.disconnect();
      dark.removeEventListener("change", repaint);
    };
  }, [heard]);
  return html`<figure class="strip"><div class="hint" aria-hidden="true"><span>8 kHz</span><span>0</span></div>
    <canvas class="spectrogram" ref=${canvas} width="600" height=${BANDS} role="img" aria-label=${`Spectrogram of the last ${seconds} s, 0 to 8 kHz, low sounds below; what was heard is in the table of events`}></canvas>
    <div class="hint times" aria-hidden="true"><span>${seconds} s ago</span><span>${Math.round(seconds / 2)} s ago</span><span>now</span></div></figure>`;
}

class Picture {
  /** Columns that are drawn, and those that wait: each BANDS bytes, or null where there is no picture. */
  columns = [];
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
      for (let empty = 0; empty < Math.min(gap, this.element.width); empty++) this.waiting.push(null);
      for (let at = 0; at < bytes.length; at += BANDS) this.waiting.push(bytes.subarray(at, at + BANDS));
      this.next = first + bytes.length / BANDS;
    }
    if (this.waiting.length > this.element.width) this.waiting.splice(0, this.waiting.length - this.element.width);
  }

  /** Move by as much as lets half a second pass in half a second, and by more where more waits. */
  draw() {
    this.frames += 1;
    if (!this.waiting.length || (this.waiting.length < 30 && this.frames % 3)) return;
    this.columns.push(...this.waiting.splice(0, Math.max(1, Math.ceil(this.waiting.length / 20))));
    this.paint();
  }

  paint() {
    const { width } = this.element;
    this.columns.splice(0, this.columns.length - width);
    const counts = new Uint32Array(256);
    for (const column of this.columns) for (const value of column ?? []) counts[value] += 1;
    const { low, high } = contrast(counts);
    const table = ramp({ low, high: Math.max(high, low + LEAST) }, themeColours(this.element));
    const image = this.context.createImageData(width, BANDS);
    const pixels = new Uint32Array(image.data.buffer).fill(table[0]);
    this.columns.forEach((column, at) => {
      const x = width - this.columns.length + at;
      for (let band = 0; column && band < BANDS; band++) pixels[(BANDS - 1 - band) * width + x] = table[column[band]];
    });
    this.context.putImageData(image, 0, 0);
  }

  /** Take the width of the page, and return it; what is drawn stays at the right. */
  resize() {
    this.element.width = Math.max(60, Math.min(2000, this.element.clientWidth));
    this.paint();
    return this.element.width;
  }
}
