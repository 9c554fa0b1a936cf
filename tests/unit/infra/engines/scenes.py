"""Scenes in short notation."""

from __future__ import annotations

from infra.engines.scene import Event, Line, Request, Scene, scene

Stretch = tuple[str, float, float, float]
Turn = tuple[str, float, float, str]


def request(duration: float, *events: Stretch, turns: tuple[Turn, ...] = ()) -> Request:
    return Request(
        "caption",
        duration,
        tuple(Event(*event) for event in events),
        tuple(Line(text, start, end, speaker) for speaker, start, end, text in turns),
    )


def heard(duration: float, *events: Stretch, turns: tuple[Turn, ...] = ()) -> Scene:
    return scene(request(duration, *events, turns=turns))
