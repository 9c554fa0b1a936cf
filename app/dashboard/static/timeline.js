// A picture of a recording: a row of bars for each tag and each speaker. The tables beside it say the same.
import { clock, html, hue, tagName, useEffect, useRef } from "./lib.js";

const ROW = 22;
const LABEL = 120;

/** `bars` {tag, start, end, confidence}, `turns` of a transcript; a click, or an arrow key, seeks. */
export function Timeline({ bars, turns, seconds, at, onSeek }) {
  const canvas = useRef(null);
  const rows = [...new Set(bars.map((bar) => bar.tag)), ...new Set(turns.map((turn) => turn.speaker_name ?? turn.speaker ?? "Speech"))];
  useEffect(() => {
    const element = canvas.current;
    const draw = () => paint(element, rows, bars, turns, seconds, at);
    const sized = new ResizeObserver(draw);
    sized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    draw();
    return () => {
      sized.disconnect();
      dark.removeEventListener("change", draw);
    };
  });
  const seekTo = (event) => {
    const { left, width } = canvas.current.getBoundingClientRect();
    const label = labelWidth(width);
    onSeek(Math.max(0, Math.min(seconds, ((event.clientX - left - label) / (width - label)) * seconds)));
  };
  return html`<figure class="timeline">
    <canvas ref=${canvas} height=${rows.length * ROW + 24} onClick=${seekTo} role="img" aria-label=${`Events over ${clock(seconds)}: the tables below list them`}></canvas>
    <label class="hint">Place <input type="range" min="0" max=${seconds} step="0.1" value=${at} aria-valuetext=${clock(at, 1)} onInput=${(event) => onSeek(Number(event.target.value))} /> ${clock(at, 1)}</label>
  </figure>`;
}

function labelWidth(width) {
  return Math.min(LABEL, width * 0.3);
}

function paint(element, rows, bars, turns, seconds, at) {
  const width = element.clientWidth;
  const height = rows.length * ROW + 24;
  const scale = devicePixelRatio || 1;
  element.width = width * scale;
  element.height = height * scale;
  const context = element.getContext("2d");
  context.scale(scale, scale);
  const style = getComputedStyle(element);
  const colour = (name) => style.getPropertyValue(name).trim();
  const label = labelWidth(width);
  const x = (second) => label + (second / seconds) * (width - label);
  context.font = `12px ${style.fontFamily}`;
  context.textBaseline = "middle";
  rows.forEach((row, index) => {
    context.fillStyle = colour(index % 2 ? "--surface" : "--stripe");
    context.fillRect(0, index * ROW, width, ROW);
    context.fillStyle = colour("--text");
    context.fillText(fitted(context, tagName(row), label - 10), 4, index * ROW + ROW / 2);
  });
  const bar = (row, start, end, strength) => {
    context.globalAlpha = strength;
    context.fillStyle = colour(`--${hue(row)}`);
    context.fillRect(x(start), rows.indexOf(row) * ROW + 3, Math.max(2, x(end) - x(start)), ROW - 6);
    context.globalAlpha = 1;
  };
  for (const one of bars) bar(one.tag, one.start, one.end, 0.35 + 0.65 * one.confidence);
  for (const turn of turns) bar(turn.speaker_name ?? turn.speaker ?? "Speech", turn.start_time_sec, turn.end_time_sec, 0.9);
  context.fillStyle = colour("--muted");
  const step = niceStep(seconds, width - label);
  for (let second = 0; second <= seconds; second += step) {
    context.fillText(clock(second), x(second) + 2, height - 10);
    context.fillRect(x(second), 0, 0.5, height);
  }
  context.fillStyle = colour("--accent");
  context.fillRect(x(at) - 1, 0, 2, height);
}

function fitted(context, text, width) {
  let short = text;
  while (short.length > 1 && context.measureText(short).width > width) short = `${short.slice(0, -2)}…`;
  return short;
}

/** Seconds between two marks, so that they do not touch. */
function niceStep(seconds, width) {
  const least = (seconds * 60) / Math.max(60, width);
  return [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600].find((step) => step >= least) ?? 7200;
}
