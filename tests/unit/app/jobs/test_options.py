"""No part of the interface forgets an option of a job, or a kind of recording."""

import re

import typer.main

from app.openai.requests import Format, SpeechRequest, Task
from infra.cli.analyze import analyze
from tests import derived
from tests.conftest import ROOT
from topics.jobs.options import Options

OPTIONS = set(Options.__struct_fields__)


def test_client_has_service_values() -> None:
    told = "run `python -m tests.derived`"
    assert derived.FILE.read_text(encoding="utf-8") == derived.content(), told


def test_command_line_takes_every_option() -> None:
    app = typer.Typer()
    app.command()(analyze)
    flags = {parameter.name for parameter in typer.main.get_command(app).params}
    together = {"audio_insights", "caption", "translation", "translation_target_lang"}
    assert OPTIONS - flags == together
    assert {"insights", "translate"} <= flags


def test_openai_takes_or_leaves_every_option() -> None:
    left = {"sound_event_detection", "audio_insights", "caption", "translation_target_lang", "audio_insights_prompt"}
    request = SpeechRequest(Task.TRANSCRIBE, Format.JSON, "tiny", "en", "Earshot")
    assert {*request.job_options(), *left, "min_speakers", "max_speakers"} == OPTIONS


def test_page_tells_every_option() -> None:
    page = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    table = re.findall(r"^\|(.*?)\|", page.partition("## Options")[2].partition("\n## ")[0], re.MULTILINE)
    assert {name for cell in table for name in re.findall("`(.*?)`", cell)} == OPTIONS
