"""The settings for a small machine."""

import pytest

from infra.service import limits
from infra.settings import Settings, typing_errors
from streams import memory
from tests.conftest import ROOT


def test_settings_of_a_small_machine_are_valid_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (ROOT / "infra/deploy/small.env").read_text().splitlines()
    chosen = dict(line.split("=") for line in lines if not line.startswith("#"))
    assert not typing_errors(chosen)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert len(settings.model_fields_set) == len(chosen)
    assert (settings.model, settings.bundled_engines) == ("sed-mini", False)
    monkeypatch.setattr(memory, "allowed", lambda: limits.ENOUGH_MIB << 20)
    assert not list(limits.memory_findings(settings.model_copy(update={"lanes": 1})))
