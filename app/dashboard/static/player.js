// Hears a recording: the browser's own player, by a link that needs no key.
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { Refused, pause, request, url } from "./api.js";

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

/** `onLength(seconds)` is told how long the recording is, as soon as the browser knows, and again if it was an estimate. */
export function Player({ job, player, onLength }) {
  const [source, setSource] = useState(null);
  const [fault, setFault] = useState("");
  const [speed, setSpeed] = useState(1);
  const element = useRef(null);
  const stop = useRef(new AbortController());
  const open = async () => {
    const { signal } = stop.current;
    for (let failures = 0; !signal.aborted; failures++) {
      try {
        const link = await (await request("POST", `/api/v1/jobs/${job}/audio`, { signal })).json();
        setSource({ link: url(link.url) });
        return;
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status < 500) {
          setFault(error.message);
          return;
        }
        await pause(failures, error.retryAfter);
      }
    }
  };
  useEffect(() => {
    stop.current = new AbortController();
    open();
    return () => stop.current.abort();
  }, [job]);
  useEffect(() => {
    const audio = element.current;
    if (!audio || !source) return undefined;
    player.audio = audio;
    audio.src = source.link;
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
  const broken = async ({ target }) => {
    const network = target.error?.code === MediaError.MEDIA_ERR_NETWORK;
    const answer = network ? null : await fetch(source.link, { headers: { Range: "bytes=0-0" } }).catch(() => null);
    if (answer?.ok) {
      setFault("This browser cannot play recordings of this kind. The picture and all times work without it.");
      return;
    }
    // The link ended, or the service was away: the next link goes on from the same place.
    await pause(1);
    open();
  };
  if (fault) return html`<p class="hint" role="status">${fault}</p>`;
  return html`<div class="player">
    <audio ref=${element} controls preload="metadata" aria-label="The recording" onDurationChange=${({ target }) => Number.isFinite(target.duration) && onLength(target.duration)} onError=${broken}></audio>
    <label>Speed <select value=${speed} onChange=${(event) => {
      setSpeed(Number(event.target.value));
      element.current.playbackRate = Number(event.target.value);
    }}>${SPEEDS.map((one) => html`<option value=${one}>${one} ×</option>`)}</select></label>
    <span class="hint">Space plays and pauses.</span>
  </div>`;
}
