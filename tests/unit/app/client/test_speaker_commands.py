"""`earshot speakers` as a user types it, at the service's edge."""

import io
import json
import os
from pathlib import Path

import msgspec
import pytest

from app.speakers.rendering import speaker_entry, transcription
from tests.unit.app.client.conftest import Command
from tests.unit.app.client.edge import TURNS, WAV, Edge
from tests.unit.app.conftest import ORG_KEY, House
from tests.unit.app.jobs.conftest import transcript
from tests.unit.app.speakers.double import BEGINNING, Registered
from topics.errors import AudioTooLong, EngineAway
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Segment

Speakers = dict[str, Registered]


@pytest.fixture
def run(earshot: Command, url: str) -> Command:
    return lambda *arguments: earshot("speakers", *arguments, "--url", url, org_key=ORG_KEY)


@pytest.fixture
def speakers(house: House) -> Speakers:
    return house.speakers.organizations.setdefault("organization", {})


def row(speakers: Speakers) -> object:
    """Return Anna Kim as the service does."""
    return msgspec.to_builtins(speaker_entry(speakers["Anna_Kim"].profile("Anna_Kim")))


def columns(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines]


def test_add_list_and_remove(speakers: Speakers, wav: Path, run: Command) -> None:
    code, out, err = run("add", "Anna_Kim", wav, wav)
    assert (code, err) == (0, "")
    assert ["samples", "2"] in columns(out)
    assert speakers == {"Anna_Kim": Registered(BEGINNING, [WAV, WAV])}
    _, out, _ = run("list")
    assert columns(out) == [
        ["speaker", "created_at", "total_length", "samples", "is_compatible"],
        ["Anna_Kim", "2026-01-02T03:04:05.678Z", str(2.0 * len(WAV)), "2", "True"],
    ]
    _, out, _ = run("list", "--json")
    assert json.loads("\n".join(out)) == [row(speakers)]
    code, out, _ = run("name", "Anna_Kim", "Anna Müller", "--json")
    assert (code, json.loads("\n".join(out))) == (0, row(speakers))
    assert columns(run("list")[1])[1][-2:] == ["Anna", "Müller"]
    assert run("name", "Anna_Kim", "")[0] == 0
    assert speakers["Anna_Kim"].display_name is None
    code, out, _ = run("remove", "Anna_Kim", "--yes", "--json")
    assert (code, json.loads("\n".join(out))) == (0, {"deleted": "Anna_Kim"})
    assert run("list") == (0, [], "")
    assert run("remove", "Anna_Kim", "--yes") == (1, [], "earshot: speaker not found\n")


def test_voice_is_added_from_job(house: House, speakers: Speakers, wav: Path, run: Command) -> None:
    job = house.jobs.create(Options(speech_analysis=True), keep_audio_ms=60_000)
    house.jobs.perform(job, Service.SPEECH, transcript(Segment(0, 4000, "Sit!", 0), Segment(4000, 9000, "Why?", 1)))
    of_job = ["--from-job", job, "--speaker", "SPEAKER_01"]
    code, out, err = run("add", "Anna_Kim", *of_job, "--json")
    assert (code, json.loads("\n".join(out)), err) == (0, row(speakers), "")
    assert speakers["Anna_Kim"].voices == [b"audio"]
    assert house.speakers.passages == [(b"audio", "audio/wav", ((4000, 9000),))]
    code, _, err = run("add", "Anna_Kim", "--from-job", "another", "--speaker", "SPEAKER_01")
    assert (code, err) == (1, "earshot: job not found\n")
    for wrong in ([], of_job[:2], of_job[2:], [*of_job, wav]):
        code, _, err = run("add", "Anna_Kim", *wrong)
        assert code != 0
        assert err == "earshot: give recordings, or --from-job with --speaker\n"


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_removal_asks_for_confirmation(
    answer: str, speakers: Speakers, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    speakers["Anna_Kim"] = Registered(BEGINNING, [WAV])
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    code, _, err = run("remove", "Anna_Kim")
    assert code == 1
    assert "Delete speaker Anna_Kim and all their voice samples?" in err
    assert "give --yes" in err
    assert list(speakers) == ["Anna_Kim"]


def test_add_continues_after_failed_file(
    edge: Edge, speakers: Speakers, wav: Path, tmp_path: Path, run: Command
) -> None:
    missing, empty = tmp_path / "missing.wav", tmp_path / "empty.wav"
    empty.touch()
    edge.faults.append(EngineAway("it is away"))
    code, out, err = run("add", "Anna_Kim", wav, missing, empty, wav, "--json")
    assert code == 1
    assert json.loads("\n".join(out)) == row(speakers)
    assert err.splitlines() == [
        f"earshot: {wav}: speaker service unavailable",
        f"earshot: {missing}: No such file or directory",
        f"earshot: {empty}: an empty file",
    ]


def test_recognition_prints_table(house: House, wav: Path, run: Command) -> None:
    house.speakers.turns = TURNS
    code, out, err = run("recognize", wav)
    assert (code, err) == (0, "")
    text = [" ".join(line.split()) for line in out]
    assert "from to speaker score text" in text
    assert "0:00.0 0:30.0 Anna_Kim 0.73 Good [morning][2J." in text
    assert "0:30.0 1:00.0 Unknown 0 0.06 Hello." in text
    assert "1:00.0 1:30.0 Unknown 1" in text
    house.speakers.turns = []
    assert "no speech" in run("recognize", wav)[1]


def test_recognition_reports_speakers_of_other_model(speakers: Speakers, wav: Path, run: Command) -> None:
    speakers.update(Anna_Kim=Registered(BEGINNING, [WAV]), Bo=Registered(BEGINNING, [WAV], compatible=False))
    code, out, err = run("recognize", wav)
    assert (code, bool(out)) == (0, True)
    assert err == "earshot: not recognised, because another model made their samples: Bo\n"


def test_recognition_prints_json(house: House, wav: Path, run: Command) -> None:
    house.speakers.turns = TURNS
    turns = msgspec.to_builtins(transcription(TURNS, "organization"))["transcription"]
    code, out, _ = run("recognize", wav, "--json")
    said = json.loads("\n".join(out))
    assert (code, len(said)) == (0, 3)
    assert all(one.items() <= whole.items() for one, whole in zip(said, turns, strict=True))


def test_too_long_recording_suggests_analyze(edge: Edge, wav: Path, run: Command) -> None:
    edge.faults.append(AudioTooLong())
    code, out, err = run("recognize", wav)
    assert (code, out) == (1, [])
    hint = f"try earshot analyze --speakers {wav}"
    assert err == f"earshot: {wav}: audio length is longer than 10 minutes; {hint}\n"


def test_speakers_of_other_model_are_re_enrolled(speakers: Speakers, run: Command) -> None:
    for name in ("Anna_Kim", "Bo", "Cy"):
        speakers[name] = Registered(BEGINNING, [WAV], compatible=name == "Bo")
    code, out, _ = run("re-enroll")
    assert (code, columns(out)[1:]) == (0, [["Anna_Kim", "1", "0"], ["Cy", "1", "0"]])
    nothing = "earshot: the model knows the samples of all speakers; nothing was embedded again\n"
    assert run("re-enroll") == (0, [], nothing)
    speakers["Bo"] = Registered(BEGINNING, [WAV] * 3, compatible=False, lost=2)
    code, out, _ = run("re-enroll", "Bo", "--json")
    assert (code, json.loads("\n".join(out))) == (1, [{"speaker": "Bo", "done": 1, "left": 2}])


def test_undecodable_names_are_handled(speakers: Speakers, wav: Path, run: Command) -> None:
    odd = wav.parent / os.fsdecode(b"ann\xff.wav")
    odd.write_bytes(WAV)
    assert run("add", "Anna_Kim", odd)[0] == 0
    assert run("recognize", odd)[0] == 0
    name = os.fsdecode(b"Anna\xff")
    for command in ["add", name, str(wav)], ["remove", name, "-y"], ["re-enroll", name]:
        code, out, err = run(*command)
        assert (code, out, len(err.splitlines())) == (1, [], 1)
    assert list(speakers) == ["Anna_Kim"]


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ("eso_secret\r", "a line break"),
        ("eso_secret\n0", "a line break"),
        (" eso_secret", "a space at its beginning or end"),
        ("eso_secret-\u00fc", "a character that is not printable ASCII"),
        ("eso_secret\t0", "a character that is not printable ASCII"),
    ],
)
def test_unsendable_key_is_not_printed(edge: Edge, earshot: Command, key: str, cause: str, tmp_path: Path) -> None:
    def refused(source: str, *options: object, **variables: str) -> None:
        code, out, err = earshot("speakers", "list", "--url", edge.url, *options, **variables)
        fault = f"the key has {cause}, which cannot be sent in an HTTP header: remove it"
        assert (code, out, err) == (1, [], f"earshot: organization key ({source}): {fault}\n")

    refused("EARSHOT_ORG_KEY", org_key=key)
    if "line" not in cause:
        file = tmp_path / "file"
        file.write_text(f"{key}\n")
        refused(f"--org-key-file {file}", "--org-key-file", file)
        refused("EARSHOT_ORG_KEY_FILE", org_key_file=str(file))
    assert edge.requests == []
