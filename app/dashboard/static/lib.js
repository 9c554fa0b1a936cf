// What every view uses: templates, hooks, and how times and numbers are shown.
import { Component, h, render } from "./vendor/preact.mjs";
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";

export const html = htm.bind(h);
export { Component, render, useCallback, useEffect, useMemo, useRef, useState };

/** Seconds as 1:02:03 or 2:03.4. */
export function clock(seconds, digits = 0) {
  const whole = Number(Math.max(0, seconds).toFixed(digits)); // Rounded first: 59.96 s are a minute.
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const rest = (whole % 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** A length of time in words, for people who do not read clocks. */
export function lengthInWords(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

/** A time of the day as the reader's own calendar has it. */
export function when(text) {
  return text ? DATE.format(new Date(text)) : "never";
}

/** Bytes as people read them. */
export function bytes(count) {
  const unit = count < 1e3 ? 0 : Math.min(4, Math.floor(Math.log10(count) / 3));
  return `${(count / 1000 ** unit).toFixed(unit && count / 1000 ** unit < 10 ? 1 : 0)} ${["B", "KB", "MB", "GB", "TB"][unit]}`;
}

/** A tag's name as people write it. */
export function tagName(name) {
  return name.replaceAll("_", " ");
}

/** A colour of its own for each name, readable on light and dark; a class of the style sheet, since styles are not inline. */
export function hue(name) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) % 12;
  return `hue-${sum}`;
}

/** Who speaks in a turn of a transcript. */
export function speakerOf(turn) {
  return turn.speaker_name ?? turn.speaker ?? "Speech";
}

/** The colour of each speaker of a transcript, as a Map: no two have the same before there are twelve. */
export function speakerHues(turns) {
  return new Map([...new Set(turns.map(speakerOf))].map((name, place) => [name, `hue-${(7 * place + 1) % 12}`]));
}

/** Let the browser keep a text as a file. */
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
