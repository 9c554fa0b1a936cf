"""Speech analysis with doubles of engines, detectors and speakers."""

import asyncio
import errno
import io
import threading
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streams.audio.decode import open_file
from streams.clients.transcriptions import TranscriptionClient
from streams.models.manifest import Graph, Waveform
from streams.models.protocol import Floats
from streams.services import pcm_file
from streams.services.service import RunSummary
from streams.services.speaker_names import unknown_names
from streams.services.speech import NOTHING_SAID, SpeechService
from streams.voice import loudness as levels
from streams.voice import overlap
from streams.voice.overlap_manifest import OverlapManifest
from streams.voice.speaker_engine import SpeakerEngine
from streams.voice.speech_segments import FRAME, RATE
from tests.audio import encoded
from tests.unit.streams.clients.http_engine import Asked, HttpEngine, reply
from tests.unit.streams.jobs.runs import Run
from tests.unit.streams.speakers.house import Attentive
from tests.unit.streams.voice.tones import Ear, Tones, talk
from topics.errors import DirectoryDown, EngineAway, EngineError, ServiceError, ServiceFault, Unavailable
from topics.jobs import payloads


class OneVoice(Tones):
    """Cannot distinguish voices."""

    def embed(self, samples: Floats) -> Floats:
        raise EngineError("out of order")


def saved(path: Path, samples: Floats, rate: int = RATE, kind: str = "WAV", subtype: str = "PCM_16") -> Path:
    made = path / "a.audio"
    made.write_bytes(encoded(0.9 * samples, rate, kind, subtype))
    return made


def length(asked: Asked) -> float:
    """Return the seconds of a received piece."""
    with wave.open(io.BytesIO(asked.fields["file"][0])) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        return float(file.getnframes() / RATE)


class Register:
    """Recognises the first voice it gets, unless it is unavailable."""

    def __init__(self, away: ServiceError | None = None) -> None:
        self.away = away
        self.asked: list[tuple[str, list[float]]] = []

    async def names(
        self, organization: str, voices: Sequence[Floats], warn: Callable[[str], None]
    ) -> Sequence[tuple[str, float]]:
        self.asked.append((organization, [len(voice) / RATE for voice in voices]))
        if self.away is not None:
            raise self.away
        return [("Anna", 0.8), *unknown_names(len(voices) - 1)]


class UnknownSpeakers:
    """Nobody is registered."""

    async def names(
        self, organization: str, voices: Sequence[Floats], warn: Callable[[str], None]
    ) -> Sequence[tuple[str, float]]:
        return unknown_names(len(voices))


NOBODY = UnknownSpeakers()


def service_of(
    engine: HttpEngine, speakers: SpeakerEngine | None = None, *, model: str | None = None, limit: int = 4, **given: Any
) -> SpeechService:
    client = TranscriptionClient(engine.address(model=model, limit=limit))
    given = {"names": NOBODY, "piece_seconds": 2.5, "load_detector": Ear, "nice": 0, **given}
    return SpeechService(client, speakers, open_file, **given)


def perform(
    run: Run, engine: HttpEngine, speakers: SpeakerEngine | None = None, piece_seconds: float = 4.0, **given: Any
) -> RunSummary:
    found: RunSummary = engine.serve(
        lambda: service_of(engine, speakers, piece_seconds=piece_seconds, **given),
        lambda service: service.perform(run),
    )
    return found


def texts(run: Run) -> list[tuple[int, int, str, int]]:
    """Return the segments, with times rounded to 0.1 s."""
    return [(round(s.start_ms, -2), round(s.end_ms, -2), s.text, s.speaker) for s in run.segments]


def numbered(asked: Asked) -> bytes:
    return reply({"text": asked.headers["idempotency-key"].removeprefix("the-run-"), "language": "en"})


def three(path: Path) -> Path:
    """Write three stretches of two seconds of speech, a second apart."""
    return saved(path, talk((0, 2.0), (None, 1.0), (0, 2.0), (None, 1.0), (0, 2.0)))


def test_silence_is_not_sent_to_engine(tmp_path: Path) -> None:
    engine, run = HttpEngine(), Run(saved(tmp_path, talk((None, 3.0))), speaker_diarization=False)
    assert perform(run, engine, model="whisper") == RunSummary("whisper", 3000)
    assert engine.asked == []
    assert [payloads.transcript(data) for data in run.emitted] == [payloads.Transcript(())]
    assert run.done == [1.0]
    assert [file.name for file in tmp_path.iterdir()] == ["a.audio"]


def test_speech_is_sent_in_pieces_cut_at_pauses(tmp_path: Path) -> None:
    """Two of the three make a piece of 5.2 s at most; plain answers give one segment per piece."""
    engine, run = HttpEngine(numbered), Run(three(tmp_path), speaker_diarization=False)
    assert perform(run, engine, piece_seconds=5.5) == RunSummary("default", 8000)
    assert sorted(length(asked) for asked in engine.asked) == pytest.approx([2.1, 5.2], abs=0.1)
    assert texts(run) == [(0, 5100, "0", 0), (5900, 8000, "1", 0)]
    assert {(segment.name, segment.score) for segment in run.segments} == {("Unknown 0", -1.0)}
    assert payloads.transcript(run.emitted[-1]).languages == ("en",)
    assert run.done == sorted(run.done)
    assert run.done[-1] == 1.0


@pytest.mark.parametrize(
    ("model", "options", "sent"),
    [
        ("own", {"speech_lang": "ko"}, {"model": [b"own"], "language": [b"ko"]}),
        ("own", {"speech_model": "whisper-large-turbo"}, {"model": [b"own"]}),
        ("own", {"speech_model": "large-v3"}, {"model": [b"large-v3"]}),
        (None, {}, {}),
    ],
)
def test_default_model_name_maps_to_deployment_model(
    tmp_path: Path, model: str | None, options: dict[str, Any], sent: dict[str, list[bytes]]
) -> None:
    engine = HttpEngine(reply({"text": "Hello."}))
    done = perform(Run(three(tmp_path), **options), engine, piece_seconds=30, model=model)
    assert done.model == sent.get("model", [b"default"])[0].decode()
    fields = engine.asked[0].fields
    assert {name: fields[name] for name in ("model", "language") if name in fields} == sent


def test_longest_piece_sets_likely_language_of_others(tmp_path: Path) -> None:
    """It is sent first, and the others wait; results are in order of time."""

    def answer(asked: Asked) -> bytes:
        number = asked.headers["idempotency-key"].removeprefix("the-run-")
        return reply({"text": number, "language": "french" if number == "1" else "thai"})

    speech = talk((0, 1.0), (None, 1.0), (0, 3.0), (None, 1.0), (0, 1.0))
    engine, run = HttpEngine(answer), Run(saved(tmp_path, speech), speaker_diarization=False)
    perform(run, engine, piece_seconds=3.5, takes_likely_language=True)
    first, *others = engine.asked
    assert length(first) == pytest.approx(3.2, abs=0.1)
    assert "likely_language" not in first.fields
    assert [asked.fields["likely_language"] for asked in others] == [[b"french"], [b"french"]]
    assert [segment.text for segment in run.segments] == ["0", "1", "2"]
    assert payloads.transcript(run.emitted[-1]).languages == ("french", "thai")


def test_long_pieces_do_not_wait_for_likely_language(tmp_path: Path) -> None:
    """The engine gets two long pieces at a time; the short one between them waits for the longest."""
    engine = HttpEngine(lambda asked: reply({"text": "a", "language": "french"}))
    speech = talk((0, 21.0), (None, 6.0), (0, 1.0), (None, 6.0), (0, 22.0))
    run = Run(saved(tmp_path, speech), speaker_diarization=False)
    perform(run, engine, piece_seconds=28, takes_likely_language=True)
    told = sorted((round(length(asked), -1), asked.fields.get("likely_language")) for asked in engine.asked)
    assert told == [(0.0, [b"french"]), (20.0, None), (20.0, None)]


def test_prompt_and_known_language_are_sent_with_every_piece(tmp_path: Path) -> None:
    engine = HttpEngine(reply({"text": "Hello."}))
    options: dict[str, Any] = {"speech_prompt": "Anna Kowalczyk", "speech_lang": "fr", "speaker_diarization": False}
    perform(Run(three(tmp_path), **options), engine, piece_seconds=2.5, takes_likely_language=True)
    for name, value in (("prompt", b"Anna Kowalczyk"), ("language", b"fr")):
        assert {tuple(asked.fields[name]) for asked in engine.asked} == {(value,)}
    assert not any("likely_language" in asked.fields for asked in engine.asked)


@pytest.mark.parametrize(("text", "hint", "count"), [(" ", "x x x", 1), ("Hello.", "x x x", 0), (" ", None, 0)])
def test_hints_without_any_text_are_a_warning(tmp_path: Path, text: str, hint: str | None, count: int) -> None:
    """A Whisper model that is told the same word hundreds of times says nothing."""
    run = Run(three(tmp_path), speech_prompt=hint, speaker_diarization=False)
    assert [*perform(run, HttpEngine(reply({"text": text}))).warnings] == count * [NOTHING_SAID]


def test_pieces_stay_in_order_despite_late_answers(tmp_path: Path) -> None:
    """The first is answered last; the engine's limit of calls holds."""
    run, engine = Run(three(tmp_path), speaker_diarization=False), HttpEngine(numbered)
    engine.may_answer = lambda asked: not asked.headers["idempotency-key"].endswith("-0") or len(engine.asked) == 3
    perform(run, engine, piece_seconds=2.5, limit=2)
    assert [segment.text for segment in run.segments] == ["0", "1", "2"]
    assert engine.most_at_once == 2
    assert {asked.headers["idempotency-key"] for asked in engine.asked} == {f"the-run-{n}" for n in range(3)}


def test_times_are_relative_to_whole_recording(tmp_path: Path) -> None:
    """Local times are shifted by the start of the piece, and stay within it."""
    answer = {
        "text": " One. Two.",
        "segments": [{"text": " One.", "start": 0.5, "end": 1.0}, {"text": " Two.", "start": 1.5, "end": 99.0}],
    }
    run = Run(three(tmp_path), speaker_diarization=False)
    perform(run, HttpEngine(reply(answer)), piece_seconds=2.5)
    assert texts(run) == [
        (500, 1000, "One.", 0),
        (1500, 2100, "Two.", 0),
        (3400, 3900, "One.", 0),
        (4400, 5100, "Two.", 0),
        (6400, 6900, "One.", 0),
        (7400, 8000, "Two.", 0),
    ]


def test_words_are_assigned_to_current_speaker(tmp_path: Path) -> None:
    audio = saved(tmp_path, talk((0, 4.0), (1, 4.0), (0, 4.0)))
    said = [("Hello", 0.2, 0.5), ("there", 3.0, 3.4), ("Hi", 5.0, 5.5), ("Well", 9.0, 9.5), ("yes", 9.6, 9.9)]
    answer = {
        "text": "Hello there. Hi! Well, yes.",
        "words": [{"word": word, "start": start, "end": end} for word, start, end in said],
        "segments": [{"text": "Hello there. Hi! Well, yes.", "start": 0.0, "end": 12.0}],
    }
    run = Run(audio)
    assert perform(run, HttpEngine(reply(answer)), Tones(), piece_seconds=30) == RunSummary("default", 12000)
    assert [found[2:] for found in texts(run)] == [("Hello", 0), ("there.", 0), ("Hi!", 1), ("Well, yes.", 0)]
    # With their turns, which change after four seconds each, but at most a second from the words.
    times = [(0, 1500), (2000, 4000), (4000, 6500), (8000, 10_900)]
    assert [found[:2] for found in texts(run)] == [pytest.approx(one, abs=420) for one in times]
    assert [segment.name for segment in run.segments] == ["Unknown 0", "Unknown 0", "Unknown 1", "Unknown 0"]


@pytest.mark.parametrize(
    ("bounds", "volume", "speakers"),
    [({}, 1.0, {0, 1}), ({"max_speakers": 1}, 1.0, {0}), ({}, 0.02, {0, 1})],
    ids=["two", "no more than there may be", "soft ones"],
)
def test_speakers_are_distinguished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any], volume: float, speakers: set[int]
) -> None:
    # The double detects only loud tones as speech.
    monkeypatch.setattr(levels, "LEVEL_DB", -12.0)
    run = Run(saved(tmp_path, np.float32(volume) * talk((0, 4.0), (1, 4.0))), **bounds)
    words = [{"word": "One", "start": 1.0, "end": 2.0}, {"word": "two", "start": 6.0, "end": 7.0}]
    perform(run, HttpEngine(reply({"text": "One two", "words": words})), Tones(), piece_seconds=30)
    assert {segment.speaker for segment in run.segments} == speakers


def test_voice_activity_is_computed_once(tmp_path: Path) -> None:
    """For its pieces and for its speakers."""
    ear = Attentive()
    perform(Run(three(tmp_path)), HttpEngine(numbered), Tones(), 2.5, load_detector=lambda: ear)
    assert ear.frames == 8 * RATE / FRAME


def test_registered_speakers_are_named(tmp_path: Path) -> None:
    """They are looked up once, with up to half a minute of each voice."""
    audio = saved(tmp_path, talk((0, 4.0), (1, 34.0), (0, 4.0)))
    said = [{"word": str(start), "start": start, "end": start + 0.3} for start in (1, 10, 30, 40)]
    engine = HttpEngine(reply({"text": "1 10 30 40", "words": said}))
    run, register = Run(audio, speaker_profile=True), Register()
    assert perform(run, engine, Tones(), 60, names=register).warnings == ()
    names = [(segment.name, segment.score) for segment in run.segments]
    assert names == [("Anna", 0.8), ("Unknown 0", -1.0), ("Unknown 0", -1.0), ("Anna", 0.8)]
    ((organization, lengths),) = register.asked
    assert organization == "an-organization"
    assert lengths == pytest.approx([8.0, 30.0], abs=1)


@pytest.mark.parametrize(
    ("options", "away", "warning"),
    [
        ({}, None, None),
        ({"speaker_profile": True, "speaker_diarization": False}, None, "they were not separated"),
        ({"speaker_profile": True}, EngineAway("it is away"), "it is away"),
        ({"speaker_profile": True}, DirectoryDown("it is away"), "it is away"),
    ],
    ids=["not asked for", "not separated", "no engine", "no database"],
)
def test_speakers_without_lookup_are_unknown(
    tmp_path: Path, options: dict[str, Any], away: ServiceError | None, warning: str | None
) -> None:
    run, register = Run(three(tmp_path), **options), Register(away)
    done = perform(run, HttpEngine(numbered), Tones(), 30, names=register)
    assert done.warnings == (() if warning is None else (f"speakers were not named: {warning}",))
    assert bool(register.asked) is (away is not None)
    assert [(segment.text, segment.name, segment.score) for segment in run.segments] == [("0", "Unknown 0", -1.0)]


def test_progress_is_reported_before_speakers_are_known(tmp_path: Path) -> None:
    run = Run(three(tmp_path))
    perform(run, HttpEngine(numbered), Tones(), piece_seconds=2.5, limit=1)
    assert len(run.done) == 4
    assert run.done == sorted(run.done)
    assert [len(payloads.transcript(data).segments) for data in run.emitted] == [0, 0, 0, 1]


def test_failed_diarization_keeps_words_with_warning(tmp_path: Path) -> None:
    run = Run(three(tmp_path))
    done = perform(run, HttpEngine(numbered), OneVoice(), piece_seconds=30)
    assert done.warnings == ("speakers were not separated: out of order",)
    assert [segment.text for segment in run.segments] == ["0"]
    done = perform(run, HttpEngine(numbered), None, piece_seconds=30)
    assert done.warnings == ("speakers were not separated: this deployment has no diarization model",)


class Both:
    """Detects two voices in the third second of each window, unless it is broken."""

    def __init__(self, away: bool = False) -> None:
        self.away = away
        seconds = Waveform(RATE, 4 * RATE)
        self.manifest = OverlapManifest("both", "1", "CC0-1.0", "", Graph("", ""), seconds, 800, 1600, 0.4, 0.4)

    def probabilities(self, samples: Floats) -> Floats:
        if self.away:
            raise EngineError("out of order")
        return np.repeat(np.array([0, 0, 1, 0], np.float32), 10)


def two_voices(path: Path, monkeypatch: pytest.MonkeyPatch, ears: Both, **options: Any) -> tuple[Run, RunSummary]:
    monkeypatch.setattr(overlap, "is_clear", len)
    words = [{"word": word, "start": start, "end": start + 1} for word, start in (("One", 1.0), ("two", 4.0))]
    run = Run(saved(path, talk((0, 3.0), (1, 3.0))), **options)
    engine = HttpEngine(reply({"text": "One two", "words": words}))
    return run, perform(run, engine, Tones(), 30, names=Register(), overlap=ears)


def test_turns_report_overlapping_speakers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, done = two_voices(tmp_path, monkeypatch, Both(), speaker_profile=True)
    assert done.warnings == ()
    first, second = run.segments
    assert first.name == "Anna"
    assert first.overlap_ms == sum(one.end_ms - one.start_ms for one in first.overlaps)
    assert {(one.speaker, one.name) for one in first.overlaps} == {(1, "Unknown 0")}
    assert all(first.start_ms <= one.start_ms < one.end_ms <= first.end_ms for one in first.overlaps)
    assert {(one.speaker, one.name) for one in second.overlaps} == {(0, "Anna")}


def test_failed_overlap_detection_keeps_transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, done = two_voices(tmp_path, monkeypatch, Both(away=True))
    assert done.warnings == ("overlapping speech was not marked: out of order",)
    assert [(one.text, one.speaker, one.overlaps) for one in run.segments] == [("One", 0, ()), ("two", 1, ())]


def test_speech_before_a_break_is_transcribed(tmp_path: Path) -> None:
    """The error names the time of the break."""
    noise = np.random.default_rng(1).normal(0, 0.01, 20 * RATE)
    samples = (talk((0, 2.0), (None, 1.0), (0, 2.0), (None, 15.0)) + noise).astype(np.float32)
    samples[15 * RATE :] = np.nan
    audio = saved(tmp_path, samples, subtype="FLOAT")
    run = Run(audio, "application/octet-stream", speaker_diarization=False)
    with pytest.raises(ServiceFault, match=r"the audio breaks at 1\d\.\d s: "):
        perform(run, HttpEngine(numbered), piece_seconds=2.5)
    assert [segment.text for segment in run.segments] == ["0", "1"]
    assert [file.name for file in tmp_path.iterdir()] == ["a.audio"]


def test_full_disk_raises_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/a/path")

    monkeypatch.setattr(pcm_file, "decode_to_pcm", full)
    with pytest.raises(Unavailable, match=r"the spool cannot be used: No space left on device$"):
        perform(Run(three(tmp_path)), HttpEngine())
    monkeypatch.undo()
    run = Run(three(tmp_path))
    run.full = True
    with pytest.raises(Unavailable, match="the disk is full"):
        perform(run, HttpEngine())
    assert [file.name for file in tmp_path.iterdir()] == ["a.audio"]


def test_raw_audio_is_resampled(tmp_path: Path) -> None:
    audio = tmp_path / "a.audio"
    audio.write_bytes((talk((0, 2.0), (None, 1.0))[::2] * 30000).astype("<i2").tobytes())
    engine, run = HttpEngine(numbered), Run(audio, "audio/x-raw; rate=8000; format=s16le", speaker_diarization=False)
    assert perform(run, engine).audio_ms == 3000
    assert length(engine.asked[0]) == pytest.approx(2.1, abs=0.1)


def test_engine_failure_keeps_earlier_segments(tmp_path: Path) -> None:
    run = Run(three(tmp_path), speaker_diarization=False)
    engine = HttpEngine(
        lambda asked: reply({}, 503) if asked.headers["idempotency-key"][-1] == "1" else numbered(asked)
    )
    with pytest.raises(ServiceFault, match="ASR Engine API error: 503"):
        perform(run, engine, piece_seconds=2.5, limit=1)
    assert [segment.text for segment in run.segments] == ["0"]


def test_truncated_recording_is_a_warning(tmp_path: Path) -> None:
    path = three(tmp_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    warnings = perform(Run(path), HttpEngine(numbered), Tones()).warnings
    assert [warning for warning in warnings if warning.endswith("it was cut off")]


async def test_run_is_cancelled_immediately(tmp_path: Path) -> None:
    engine, run = HttpEngine(), Run(three(tmp_path))
    begun = asyncio.Event()
    engine.answer = lambda asked: begun.set()
    async with engine.running():
        service = service_of(engine, Tones())
        task = asyncio.create_task(service.perform(run))
        await begun.wait()
        task.cancel()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert asyncio.all_tasks() - engine.connections == {asyncio.current_task()}
        await service.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("speech")]
    assert [file.name for file in tmp_path.iterdir()] == ["a.audio"]


def test_long_transcript_is_emitted_in_portions(tmp_path: Path) -> None:
    answer = {"text": "", "segments": [{"text": f"{n}", "start": n / 1000, "end": n / 1000} for n in range(450)]}
    run = Run(three(tmp_path), speaker_diarization=False)
    perform(run, HttpEngine(reply(answer)), piece_seconds=30)
    assert [len(payloads.transcript(data).segments) for data in run.emitted] == [200, 200, 50]
