// A recording over time: spectrogram, waveform, and a row of bars for each tag and each speaker, on one axis.
// The tables beside it say the same.
import { clock, html, hue, speakerHues, speakerOf, tagName, useEffect, useMemo, useRef, useState } from "./lib.js";
import { themeColours, tinted } from "./picture.js";

const ROW = 22;
const LABEL = 120;
const SPECTROGRAM = 136;
const WAVEFORM = 56;
const AXIS = 24;
/** Rows of tags that are shown at first. */
const TAGS = 12;
/** Seconds that can be zoomed into. */
const NEAREST = 0.5;
/** Pixels that a pointer moves before it drags. */
const DRAG = 5;

/**
 * `bars` {tag, start, end, confidence}, `turns` of a transcript, `picture` of `usePicture`. `view` {start, end} is what is shown,
 * `onView` changes it; a click seeks. A sound begins and ends within `soft` seconds of the ends of its bar. `player.follow(listener)` tells the place as it moves.
 */
export function Timeline({ bars, soft, turns, seconds, at, view, onView, onSeek, picture, player }) {
  const canvas = useRef(null);
  const head = useRef(null);
  const drag = useRef(null);
  const [all, setAll] = useState(false);
  const tags = useMemo(() => byLength(bars), [bars]);
  const shown = all ? tags : tags.slice(0, TAGS);
  const hues = useMemo(() => speakerHues(turns), [turns]);
  const speakers = [...hues.keys()];
  const pictured = picture.state === "there" || picture.state === "drawing";
  const top = pictured ? SPECTROGRAM + WAVEFORM : 0;
  const height = top + (shown.length + speakers.length) * ROW + AXIS;
  const span = view.end - view.start;

  const move = (start, length = span) => {
    const long = Math.min(seconds, Math.max(NEAREST, length));
    const first = Math.min(seconds - long, Math.max(0, start));
    onView({ start: first, end: first + long });
  };
  const zoom = (factor, around = Math.min(view.end, Math.max(view.start, at))) => move(around - (around - view.start) * factor, span * factor);
  const placeOf = (event) => {
    const { left, width } = canvas.current.getBoundingClientRect();
    const label = labelWidth(width);
    return view.start + Math.min(1, Math.max(0, (event.clientX - left - label) / (width - label))) * span;
  };

  useEffect(() => {
    const element = canvas.current;
    const draw = () => {
      paint(element, { bars, soft, seconds, turns, tags: shown, hues, view, picture, top, height });
      place();
    };
    const place = (second = player.second()) => {
      if (!head.current) return; // The view is being left.
      const width = element.clientWidth;
      const label = labelWidth(width);
      const x = label + ((second - view.start) / span) * (width - label);
      head.current.hidden = x < label - 1 || x > width + 1;
      head.current.style.transform = `translateX(${x}px)`;
      head.current.style.height = `${height - AXIS}px`;
    };
    const sized = new ResizeObserver(draw);
    sized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    const unfollow = player.follow(place);
    return () => {
      sized.disconnect();
      dark.removeEventListener("change", draw);
      unfollow();
    };
  }, [bars, soft, turns, shown.length, hues, view, picture, height]);
  // The browser's own zoom has to be refused, which a listener of the framework's may not.
  useEffect(() => {
    const element = canvas.current;
    const wheel = (event) => {
      if (event.ctrlKey) zoom(Math.exp(event.deltaY / 200), placeOf(event));
      else if (event.deltaX) move(view.start + (event.deltaX / element.clientWidth) * span);
      else return;
      event.preventDefault();
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  });

  const pointer = {
    onPointerDown: (event) => {
      if (event.button) return;
      drag.current = { x: event.clientX, start: view.start, moved: false };
      event.currentTarget.setPointerCapture(event.pointerId);
    },
    onPointerMove: (event) => {
      const from = drag.current;
      if (!from || !(from.moved ||= Math.abs(event.clientX - from.x) > DRAG)) return;
      const width = canvas.current.clientWidth;
      move(from.start - ((event.clientX - from.x) / (width - labelWidth(width))) * span);
    },
    onPointerUp: (event) => {
      if (drag.current && !drag.current.moved) onSeek(placeOf(event));
      drag.current = null;
    },
    onPointerCancel: () => { drag.current = null; },
  };
  const keys = (event) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const done = {
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      0: () => move(0, seconds),
      ArrowLeft: () => move(view.start - span / 4),
      ArrowRight: () => move(view.start + span / 4),
    }[event.key];
    if (!done) return;
    done();
    event.preventDefault();
  };
  const whole = span >= seconds;
  return html`<figure class="timeline">
    <div class="actions" role="group" aria-label="What is shown">
      <button class="quiet" onClick=${() => zoom(0.5)} disabled=${span <= NEAREST}>Zoom in</button>
      <button class="quiet" onClick=${() => zoom(2)} disabled=${whole}>Zoom out</button>
      <button class="quiet" onClick=${() => move(view.start - span / 2)} disabled=${view.start <= 0}>Earlier</button>
      <button class="quiet" onClick=${() => move(view.start + span / 2)} disabled=${view.end >= seconds}>Later</button>
      <button class="quiet" onClick=${() => move(0, seconds)} disabled=${whole}>All of it</button>
      <span class="hint">${clock(view.start, span < 60 ? 1 : 0)} to ${clock(view.end, span < 60 ? 1 : 0)}</span>
    </div>
    ${picture.state === "drawing" ? html`<p class="hint" role="status">The picture is being drawn…</p>` : null}
    <div class="layers" tabindex="0" role="group" aria-label="Picture of the recording: plus and minus zoom, arrows move, 0 shows all of it" onKeyDown=${keys}>
      <canvas ref=${canvas} height=${height} ...${pointer} role="img" aria-label=${`${pictured ? "Spectrogram, waveform and events" : "Events"} over ${clock(seconds)}: the tables below list them`}></canvas>
      <div class="head" ref=${head} hidden></div>
    </div>
    ${tags.length > TAGS ? html`<button class="quiet" onClick=${() => setAll(!all)}>${all ? "Only those that last longest" : `All ${tags.length} sounds`}</button>` : null}
    <label class="hint">Place <input type="range" min="0" max=${seconds} step="0.1" value=${at} aria-valuetext=${clock(at, 1)} onInput=${(event) => onSeek(Number(event.target.value), false)} /> ${clock(at, 1)}</label>
  </figure>`;
}

/** Tags, those that last longest first. */
function byLength(bars) {
  const lengths = new Map();
  for (const { tag, start, end } of bars) lengths.set(tag, (lengths.get(tag) ?? 0) + end - start);
  return [...lengths.keys()].sort((one, other) => lengths.get(other) - lengths.get(one) || one.localeCompare(other));
}

function labelWidth(width) {
  return Math.min(LABEL, width * 0.27);
}

function paint(element, { bars, soft, seconds, turns, tags, hues, view, picture, top, height }) {
  const width = element.clientWidth;
  const scale = devicePixelRatio || 1;
  element.width = width * scale;
  element.height = height * scale;
  const context = element.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const label = labelWidth(width);
  const x = (second) => label + ((second - view.start) / (view.end - view.start)) * (width - label);
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  const text = (words, y) => {
    context.fillStyle = colour("--text");
    context.fillText(fitted(context, words, label - 10), 4, y);
  };
  const inside = (draw) => {
    context.save();
    context.beginPath();
    context.rect(label, 0, width - label, height);
    context.clip();
    draw();
    context.restore();
  };
  if (top) {
    context.fillStyle = colour("--stripe");
    context.fillRect(label, 0, width - label, SPECTROGRAM);
    text(label < LABEL ? "Spectrum" : "Spectrogram", SPECTROGRAM / 2 - 8);
    text("0 to 8 kHz", SPECTROGRAM / 2 + 8);
    text("Waveform", SPECTROGRAM + WAVEFORM / 2);
    inside(() => pictures(context, picture.layers, x, colour));
  }
  const rows = new Map([...tags, ...[...hues.keys()].map((one) => `\0${one}`)].map((row, index) => [row, index]));
  for (const [row, index] of rows) {
    context.fillStyle = colour(index % 2 ? "--surface" : "--stripe");
    context.fillRect(0, top + index * ROW, width, ROW);
    text(tagName(row.replace("\0", "")), top + index * ROW + ROW / 2);
  }
  const bar = (row, hueName, start, end, strength) => {
    if (row === undefined || end < view.start || start > view.end) return;
    context.globalAlpha = strength;
    context.fillStyle = colours.get(hueName) ?? colours.set(hueName, colour(`--${hueName}`)).get(hueName);
    context.fillRect(x(start), top + row * ROW + 3, Math.max(2, x(end) - x(start)), ROW - 6);
  };
  const colours = new Map();
  inside(() => {
    for (const { tag, start, end, confidence } of bars) {
      const [row, strength, edge] = [rows.get(tag), 0.35 + 0.65 * confidence, Math.min(soft, (end - start) / 3)];
      const [first, last] = [start > 0 ? start + edge : start, end < seconds ? end - edge : end];
      if (start < first) bar(row, hue(tag), start, first, strength / 2);
      bar(row, hue(tag), first, last, strength);
      if (last < end) bar(row, hue(tag), last, end, strength / 2);
    }
    for (const turn of turns)
      for (const one of [turn, ...(turn.overlaps ?? [])]) bar(rows.get(`\0${speakerOf(one)}`), hues.get(speakerOf(one)), one.start_time_sec, one.end_time_sec, 0.9);
  });
  context.fillStyle = colour("--muted");
  const step = niceStep(view.end - view.start, width - label);
  for (let second = Math.ceil(view.start / step) * step; second <= view.end; second += step) {
    const words = clock(second, step < 1 ? 1 : 0);
    if (x(second) + context.measureText(words).width < width) context.fillText(words, x(second) + 2, height - 10);
    context.fillRect(x(second), top, 0.5, height - top);
  }
}

function pictures(context, layers, x, colour) {
  if (!layers.length) return;
  const colours = themeColours(context.canvas);
  const middle = SPECTROGRAM + WAVEFORM / 2;
  const tallest = WAVEFORM / 2 / layers[0].loudest;
  for (const { start, end, image, peaks } of layers) {
    // All layers have the contrast and the scale of the whole, so that what is loud looks alike near and far.
    const key = colours.join();
    if (image.key !== key) Object.assign(image, { key, canvas: tinted(image, layers[0].image, colours) });
    context.drawImage(image.canvas, x(start), 0, x(end) - x(start), SPECTROGRAM);
    context.fillStyle = colour("--surface");
    context.fillRect(x(start), SPECTROGRAM, x(end) - x(start), WAVEFORM);
    context.fillStyle = colour("--accent");
    const each = peaks.samples_per_pixel / peaks.sample_rate;
    const wide = Math.max(0.7, x(start + each) - x(start));
    for (let at = 0; at < peaks.length; at++) {
      const [low, high] = [peaks.data[2 * at], peaks.data[2 * at + 1]];
      context.fillRect(x(start + at * each), middle - high * tallest, wide, Math.max(1, (high - low) * tallest));
    }
  }
}

function fitted(context, text, width) {
  let short = text;
  while (short.length > 1 && context.measureText(short).width > width) short = `${short.slice(0, -2)}…`;
  return short;
}

/** Seconds between two marks, so that they do not touch. */
function niceStep(seconds, width) {
  const least = (seconds * 60) / Math.max(60, width);
  return [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].find((step) => step >= least) ?? 7200;
}
