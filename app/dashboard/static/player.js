// Hears a recording: the browser's own player, by a link that needs no key.
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { request, url } from "./api.js";

const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];

/** A player for `Player`: {seek(seconds, play), second(), follow(listener)}; it knows its place also where nothing can be heard. */
export function usePlayer(at) {
  return useMemo(() => {
    const listeners = new Set();
    let second = at;
    const player = {
      /** @type {HTMLAudioElement | null} */
      audio: null,
      second: () => second,
      follow(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      moved(to) {
        second = to;
        for (const listener of listeners) listener(to);
      },
      /** Go to a place, and play from there where something can be heard. */
      seek(to, play) {
        player.moved(to);
        if (!player.audio) return;
        player.audio.currentTime = to;
        if (play) player.audio.play().catch(() => {}); // What it says of itself is shown by its own events.
      },
    };
    return player;
  }, []);
}

export function Player({ job, player }) {
  const [source, setSource] = useState(null);
  const [fault, setFault] = useState("");
  const [speed, setSpeed] = useState(1);
  const element = useRef(null);
  const until = useRef(0);
  const open = async (signal) => {
    const link = await (await request("POST", `/api/v1/jobs/${job}/audio`, { signal })).json();
    until.current = Date.parse(link.expires_at);
    setSource(url(link.url));
  };
  useEffect(() => {
    const stop = new AbortController();
    open(stop.signal).catch((error) => stop.signal.aborted || setFault(error.message));
    return () => stop.abort();
  }, [job]);
  useEffect(() => {
    const audio = element.current;
    if (!audio || !source) return undefined;
    player.audio = audio;
    audio.src = source;
    audio.currentTime = player.second();
    audio.playbackRate = speed;
    let frame = 0;
    const follow = () => {
      player.moved(audio.currentTime);
      frame = audio.paused ? 0 : requestAnimationFrame(follow);
    };
    const begin = () => { if (!frame) follow(); };
    const seeked = () => player.moved(audio.currentTime);
    audio.addEventListener("play", begin);
    audio.addEventListener("seeked", seeked);
    return () => {
      cancelAnimationFrame(frame);
      audio.removeEventListener("play", begin);
      audio.removeEventListener("seeked", seeked);
      audio.pause();
      player.audio = null;
    };
  }, [source]);
  useEffect(() => {
    const space = (event) => {
      const audio = player.audio;
      if (event.key !== " " || !audio || event.target.closest("button, input, select, textarea, a, summary, audio, dialog")) return;
      event.preventDefault();
      if (audio.paused) audio.play().catch(() => {});
      else audio.pause();
    };
    addEventListener("keydown", space);
    return () => removeEventListener("keydown", space);
  }, []);
  const broken = () => {
    // A link ends after an hour: the next one goes on from the same place.
    if (Date.now() >= until.current) open().catch((error) => setFault(error.message));
    else setFault("This browser cannot play recordings of this kind. The picture and all times work without it.");
  };
  if (fault) return html`<p class="hint" role="status">${fault}</p>`;
  return html`<div class="player">
    <audio ref=${element} controls preload="metadata" aria-label="The recording" onError=${broken}></audio>
    <label>Speed <select value=${speed} onChange=${(event) => {
      setSpeed(Number(event.target.value));
      element.current.playbackRate = Number(event.target.value);
    }}>${SPEEDS.map((one) => html`<option value=${one}>${one} ×</option>`)}</select></label>
    <span class="hint">Space plays and pauses.</span>
  </div>`;
}
