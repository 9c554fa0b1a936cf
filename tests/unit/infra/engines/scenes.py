"""Scenes in short notation."""

from infra.engines.text.scene import Scene, SceneRequest, TagEvent, TranscriptTurn, build_scene

#: Tag, start, end, peak, and how many windows report it if not all between.
Stretch = tuple[str, float, float, float] | tuple[str, float, float, float, int]
Turn = tuple[str, float, float, str]


def request(
    duration: float, *events: Stretch, turns: tuple[Turn, ...] = (), unavailable: tuple[str, ...] = ()
) -> SceneRequest:
    return SceneRequest(
        "caption",
        duration,
        tuple(TagEvent(*event) for event in events),
        tuple(TranscriptTurn(text, start, end, speaker) for speaker, start, end, text in turns),
        unavailable=unavailable,
    )


def heard(duration: float, *events: Stretch, turns: tuple[Turn, ...] = (), unavailable: tuple[str, ...] = ()) -> Scene:
    return build_scene(request(duration, *events, turns=turns, unavailable=unavailable))
