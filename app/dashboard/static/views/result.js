// What is in a recording: how it looks and sounds, events over time, the transcript, the summary; and the ways to take it away.
import { clock, download, html, speakerHues, speakerOf, tagName, useEffect, useMemo, useRef, useState } from "../lib.js";
import { RETRY, get, request, url } from "../api.js";
import { joined } from "../events.js";
import { Paged, lastBegun } from "../paged.js";
import { Copy, Dot, Problem, Progress, Sure, Wide, useTitle } from "../parts.js";
import { usePicture } from "../picture.js";
import { Player, usePlayer } from "../player.js";
import { events } from "../streams.js";
import { Teaching, Verdict, useTaught } from "../teaching.js";
import { Thresholds, windowsAt } from "../thresholds.js";
import { Timeline } from "../timeline.js";

/** The place moves with every frame; rows follow it so many times a second. */
const FOLLOWED = 4;

/** What is to be said when a service has failed. */
const FAILED = {
  sound_event_detection: "Sounds were not analysed",
  speech_analysis: "Speech was not analysed",
  translation: "Nothing was translated",
  audio_insights: "No summary was written",
  caption: "No summary was written",
};

/** The place that an address names, as {at, range}: what is shown is null for all of it. */
function placeOf(query) {
  const [at, from, to] = ["t", "from", "to"].map((name) => (Number.isFinite(Number(query.get(name))) ? Math.max(0, Number(query.get(name))) : 0));
  return { at, range: to > from ? { start: from, end: to } : null };
}

/** What went wrong with a recording, each said once: a service that only lacked another's result is left out. */
function problems({ metadata, ...services }) {
  const failed = Object.keys(services).filter((name) => services[name]?.status === "error");
  const follows = (text, own) => failed.some((name) => name !== own && text.includes(name));
  return new Set([
    ...failed.filter((name) => !follows(services[name].error, name)).map((name) => `${FAILED[name] ?? `${tagName(name)} failed`}: ${services[name].error}`),
    ...(metadata?.warnings ?? []).filter((text) => !follows(text)),
  ]);
}

export default function Result({ job, query }) {
  const { at } = placeOf(query);
  const [state, setState] = useState({ result: {}, progress: 0, status: "accepted" });
  const [error, setError] = useState(null);
  const [second, setSecond] = useState(at);
  const [scores, setScores] = useState(null);
  const [thresholds, setThresholds] = useState({});
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((count) => count + 1);
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    setError(null);
    (async () => {
      const first = await get(`/api/v1/jobs/${job}`, { signal: stop.signal });
      setState({ result: first.result, status: first.status, progress: first.status === "completed" ? 1 : 0, created: first.created_at });
      if (first.status === "completed") return;
      for await (const { event, data } of events(`/api/v1/jobs/${job}/stream`, stop.signal)) {
        // After `error` the stream is asked for again: the job moved to another node, or it is gone, which is a refusal then.
        if (event === "progress") setState((before) => ({ ...before, status: data.status, progress: data.progress }));
        else if (event === "partial_result" && data.entry) setState((before) => ({ ...before, result: { ...before.result, [data.service]: data.entry } }));
        else if (event === "completed") setState((before) => ({ ...before, result: data, status: "completed", progress: 1 }));
      }
    })().catch((problem) => {
      if (stop.signal.aborted) return;
      setError(problem);
      if (problem instanceof TypeError) timer = setTimeout(again, RETRY);
    });
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [job, turn]);
  const [range, setRange] = useState(() => placeOf(query).range);
  const player = usePlayer(at);
  const picture = usePicture(job, range ?? { start: 0, end: Infinity });
  const { result } = state;
  const windows = scores ? null : result.sound_event_detection?.results;
  const trial = Object.values(thresholds).some((value) => value !== 0.5);
  const shown = useMemo(() => (scores ? windowsAt(scores, thresholds) : windows ?? NONE), [windows, scores, thresholds]);
  // The last window ends with the audio, but those of a trial go past its end.
  const lastWindow = result.sound_event_detection?.results?.at(-1)?.end_time_sec;
  const audioEnd = picture.seconds ?? lastWindow ?? Infinity;
  const bars = useMemo(() => eventBars(shown, audioEnd), [shown, audioEnd]);
  const [hop, long] = shown.length > 1 ? [shown[1].start_time_sec - shown[0].start_time_sec, shown[0].end_time_sec - shown[0].start_time_sec] : [0, 0];
  const turns = result.speech_analysis?.results ?? NONE;
  // How long the recording is, as far as that is known: 0 until then.
  const [played, setPlayed] = useState(0);
  const length = useMemo(
    () => picture.seconds ?? [...bars, ...turns].reduce((most, one) => Math.max(most, one.end ?? one.end_time_sec), Math.max(played, lastWindow ?? 0)),
    [bars, turns, picture.seconds, played, lastWindow],
  );
  const seconds = length || 1;
  const view = useMemo(() => {
    const end = Math.min(range?.end ?? seconds, seconds);
    return range && range.start < end ? { start: range.start, end } : { start: 0, end: seconds };
  }, [range, seconds]);
  const keep = (t, stretch) => history.replaceState(null, "", address(job, t, stretch));
  const zoom = (stretch) => {
    const next = stretch.start <= 0 && stretch.end >= seconds ? null : stretch;
    setRange(next);
    keep(player.second(), next);
  };
  const seek = (place, play = true) => {
    player.seek(place, play);
    setSecond(place);
    keep(place, range);
  };
  // Another place of the same recording: by a link, or Back.
  const first = useRef(query);
  useEffect(() => {
    if (first.current === query) return;
    first.current = query;
    const place = placeOf(query);
    setRange(place.range);
    setSecond(place.at);
    player.seek(place.at, false);
  }, [query]);
  // An address may name a place past the end.
  useEffect(() => {
    if (player.second() <= audioEnd) return;
    player.seek(audioEnd, false);
    setSecond(audioEnd);
  }, [query, audioEnd]);
  useEffect(() => player.follow((place) => {
    if (Math.floor(place * FOLLOWED) !== Math.floor(second * FOLLOWED)) setSecond(place);
    // What plays past the edge of what is shown takes it along.
    const playing = player.audio && !player.audio.paused;
    if (range && playing && place >= view.end && place < seconds) zoom({ start: view.end, end: Math.min(seconds, 2 * view.end - view.start) });
  }), [second, range, seconds]);
  // A picture that could be had, and now cannot: the recording may have been deleted meanwhile.
  useEffect(() => { if (picture.state === "none" && picture.seconds) again(); }, [picture.state]);
  const name = result.metadata?.audio?.input?.filename;
  useTitle(name);
  if (error) return html`<${Problem} again=${error.status ? null : again} error=${error.status === 404 ? new Error("There is no such recording here: it was deleted, has expired, or belongs to another project.") : error} />`;
  return html`
    <p class="title"><strong>${name ?? "A recording"}</strong> <span class="hint">${job}</span></p>
    ${state.status !== "completed" ? html`<div class="card" role="status"><${Progress} label="Analysing" value=${state.progress} /></div>` : null}
    ${[...problems(result)].map((text) => html`<p class="problem">${text}</p>`)}
    ${result.caption?.result?.caption ? html`<p class="caption">${result.caption.result.caption}</p>` : null}
    ${picture.state === "none"
      ? html`<p class="hint">The audio of this recording is not kept, so it cannot be seen or heard here. <a href="#/project">Keep the audio</a> of recordings sent from now on.</p>`
      : html`<${Player} job=${job} player=${player} onLength=${setPlayed} />`}
    ${picture.state === "failed" ? html`<${Problem} error=${picture.error} />` : null}
    ${length && (picture.state !== "none" || bars.length || turns.length || scores)
      ? html`<${Timeline} bars=${bars} soft=${long - hop} turns=${turns} seconds=${seconds} at=${second} view=${view} onView=${zoom} onSeek=${seek} picture=${picture} player=${player} />`
      : picture.state === "drawing" ? html`<p class="hint" role="status">The picture is being drawn…</p>` : null}
    ${trial ? html`<p class="problem" role="status">These are the sounds at trial thresholds, not the stored result. JSON, SRT, VTT and the summary have the stored one. <button class="quiet" onClick=${() => setThresholds({})}>Show the stored result</button></p>` : null}
    <div class="columns">
      <section><h2>Sounds${trial ? " (trial)" : ""}</h2><${Bars} entry=${result.sound_event_detection} done=${state.status === "completed"} bars=${bars} digits=${hop >= 1 ? 0 : 1} at=${second} onSeek=${seek} source=${`jobs/${job}`} />
        ${bars.length && hop ? html`<p class="hint">Times are exact to about ${hop} s: each window of ${long} s is judged as a whole, and one begins every ${hop} s.</p>` : null}
        ${result.sound_event_detection ? html`<${Thresholds} job=${job} scores=${scores} onScores=${setScores} thresholds=${thresholds} onThresholds=${setThresholds} />
          <${Teaching} source=${`jobs/${job}`} passage=${passageOf(range, second, seconds)} />` : null}</section>
      <section><h2>Speech</h2><${Transcript} entry=${result.speech_analysis} done=${state.status === "completed"} turns=${turns} at=${second} onSeek=${seek} /></section>
    </div>
    <${Insights} result=${result.audio_insights?.result} />
    <${Take} job=${job} name=${name} state=${state} bars=${bars} turns=${turns} trial=${trial} here=${() => new URL(address(job, player.second(), range), location.href).href} />`;
}

const NONE = [];

/** The passage that is offered for a mark: what is shown, if somebody zoomed in, else some seconds from the place. */
function passageOf(range, second, seconds) {
  return range && range.end - range.start <= 30 ? range : { start: second, end: Math.min(second + 3, Math.max(seconds, second + 0.5)) };
}

/** The address of a place in a recording, and of what is shown of it. */
function address(job, t, shown) {
  return `#/jobs/${job}?t=${t.toFixed(1)}${shown ? `&from=${shown.start.toFixed(2)}&to=${shown.end.toFixed(2)}` : ""}`;
}

/** Events of the windows of a result, none of which goes past the end of the recording. */
function eventBars(windows, end) {
  return joined(
    windows.map((window) => ({
      start: Math.min(end, window.start_time_sec),
      end: Math.min(end, window.end_time_sec),
      tags: window.classes.map((one) => [one.class, one.confidence]),
    })),
  );
}

/** What a row does that is clicked anywhere, unless its words were marked. The button in it is for everybody. */
function seeking(onSeek, seconds) {
  return (event) => {
    if (event.target.closest("button") || !getSelection()?.isCollapsed) return;
    onSeek(Number(event.target.dataset.at ?? seconds));
  };
}

function Place({ seconds, digits = 1, onSeek, now }) {
  return html`<button class="place" aria-current=${now ? "time" : null} onClick=${() => onSeek(seconds)}>${clock(seconds, digits)}</button>`;
}

function Bars({ entry, done, bars, digits, at, onSeek, source }) {
  const [taught] = useTaught();
  if (!entry) return html`<p class="empty">${done ? "Not requested." : "…"}</p>`;
  if (!bars.length) return html`<p class="empty">No sound that the model knows.</p>`;
  return html`<${Paged} items=${bars} now=${lastBegun(bars, (bar) => bar.start, at)} name="sounds">${(rows) => html`<${Wide}><table><thead><tr><th>From</th><th>To</th><th>Sound</th><th>Surest</th>${taught ? html`<th>Is it ${tagName(taught)}?</th>` : null}</tr></thead><tbody>
    ${rows.map((bar) => html`<tr class=${bar.start <= at && at < bar.end ? "now" : ""} onClick=${seeking(onSeek, bar.start)}><td><${Place} seconds=${bar.start} digits=${digits} onSeek=${onSeek} now=${bar.start <= at && at < bar.end} /></td>
      <td>${clock(bar.end, digits)}</td><td><${Dot} name=${bar.tag} /></td><td>${Math.round(100 * bar.confidence)} %</td>${taught ? html`<td><${Verdict} name=${taught} source=${source} start=${bar.start} end=${bar.end} /></td>` : null}</tr>`)}
  </tbody></table><//>`}<//>`;
}

function Transcript({ entry, done, turns, at, onSeek }) {
  if (!entry) return html`<p class="empty">${done ? "Not requested." : "…"}</p>`;
  if (!turns.length) return html`<p class="empty">${entry.status === "error" ? "Not analysed: see above." : "No words recognised."}</p>`;
  const hues = speakerHues(turns);
  return html`<${Paged} items=${turns} now=${lastBegun(turns, (turn) => turn.start_time_sec, at)} name="turns">${(rows) => html`<ol class="turns">${rows.map((turn) => html`<li class=${turn.start_time_sec <= at && at < turn.end_time_sec ? "now" : ""} onClick=${seeking(onSeek, turn.start_time_sec)}>
    <${Place} seconds=${turn.start_time_sec} onSeek=${onSeek} now=${turn.start_time_sec <= at && at < turn.end_time_sec} />
    <div><strong class=${hues.get(speakerOf(turn))}>${speakerOf(turn)}</strong> ${turn.words?.length ? turn.words.map((word) => html`<span class=${word.start_time_sec <= at && at < word.end_time_sec ? "word now" : "word"} data-at=${word.start_time_sec}>${word.word}</span> `) : turn.transcript}
    ${turn.overlaps?.map((one) => html`<small class="together">${speakerOf(one)} speaks too, ${clock(one.start_time_sec, 1)} to ${clock(one.end_time_sec, 1)}</small>`)}
    ${turn.translation ? html`<em>${turn.translation}</em>` : null}</div></li>`)}</ol>`}<//>`;
}

function Insights({ result }) {
  if (!result) return null;
  return html`<section><h2>In short</h2><dl class="facts">
    ${[["Place", result.primary_sound_environment], ["What happens", result.situation_summary], ["What is said", result.speech_content_summary], ["Language", result.detected_language], ["Keywords", (result.keywords ?? []).join(", ")]]
      .filter(([, text]) => text)
      .map(([label, text]) => html`<div><dt>${label}</dt><dd>${text}</dd></div>`)}
  </dl></section>`;
}

function Take({ job, name, state, bars, turns, trial, here }) {
  const [sure, setSure] = useState(false);
  const [error, setError] = useState(null);
  const stem = (name ?? job).replace(/\.[^.]*$/, "");
  const captions = async (kind) => {
    try {
      download(`${stem}.${kind}`, "text/plain", await (await request("GET", `/api/v1/jobs/${job}/captions.${kind}`)).text());
    } catch (problem) {
      setError(problem);
    }
  };
  const csv = () => {
    const rows = [
      ...bars.map((bar) => [bar.start, bar.end, trial ? "sound (trial)" : "sound", bar.tag, bar.confidence.toFixed(3)]),
      ...turns.map((turn) => [turn.start_time_sec, turn.end_time_sec, "speech", `${turn.speaker_name ?? turn.speaker ?? ""}: ${turn.transcript}`, ""]),
    ].sort((one, other) => one[0] - other[0]);
    // A spreadsheet would take what begins with = + - @ for a formula.
    const cell = (value) => `"${String(value).replace(/^([=+\-@\t\r])/, "'$1").replaceAll('"', '""')}"`;
    download(`${stem}${trial ? ".trial" : ""}.csv`, "text/csv", [["start", "end", "kind", "what", "confidence"], ...rows].map((row) => row.map(cell).join(",")).join("\r\n"));
  };
  const remove = async () => {
    setSure(false);
    try {
      await request("DELETE", `/api/v1/jobs/${job}`);
      location.hash = "#/jobs";
    } catch (problem) {
      setError(problem);
    }
  };
  const ready = state.status === "completed";
  const curl = `curl -s -H "X-Api-Key: $EARSHOT_PROJECT_KEY" ${location.origin}${url(`/api/v1/jobs/${job}`)}`;
  return html`<section><h2>Export</h2><${Problem} error=${error} />
    <p class="actions">
      <button disabled=${!ready} onClick=${() => download(`${stem}.json`, "application/json", JSON.stringify(state.result, null, 1))}>JSON</button>
      <button disabled=${!ready} onClick=${() => captions("srt")}>SRT</button>
      <button disabled=${!ready} onClick=${() => captions("vtt")}>VTT</button>
      <button disabled=${!ready} onClick=${csv}>${trial ? "CSV of the trial" : "CSV"}</button>
      <${Copy} text=${curl} label="Copy as curl" />
      <${Copy} text=${here} label="Copy a link to this place" />
      <button class="danger" onClick=${() => setSure(true)}>Delete</button>
    </p>
    ${sure ? html`<${Sure} question="Delete this recording?" action="Delete" onYes=${remove} onNo=${() => setSure(false)}><p>Its results are deleted at once, for everybody. This cannot be undone.</p><//>` : null}
  </section>`;
}
