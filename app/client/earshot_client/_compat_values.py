"""Options and results with the names of the vendor's documented client: see `compat`."""

import json
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from ._session_values import NO_SOUND, Event

_LOCAL: Final = "http://127.0.0.1:8000"


def default_host(prefix: str) -> str:
    """Return the service's address for programs that give no host: `EARSHOT_URL`, or this machine."""
    return os.environ.get("EARSHOT_URL", _LOCAL).rstrip("/") + prefix


class ChunkSize(Enum):
    """The chunk size that a program asks for; chunks never exceed what every service takes, 1 MiB."""

    SIZE_5MB = 5_000_000


class SensitivityScale(Enum):
    """How readily a tag is reported, most readily first."""

    VERY_HIGH = -2
    HIGH = -1
    MEDIUM = 0
    LOW = 1
    VERY_LOW = 2


class SensitivityConfig:
    """The sensitivity of all tags, and of some by name."""

    def __init__(self, default: SensitivityScale, by_tags: dict[str, SensitivityScale] | None = None) -> None:
        self.default = default
        self.by_tags = by_tags or {}


class EventDetectionApiConfig:
    """Options of sound event detection, and its `host`, which ends in `/sense/api/v1`.

    `default_interval_margin` and `tag_interval_margin` are the seconds without a tag that a summary ignores, for all
    tags and for some. If `enabled_tags` has any, summaries and dictionaries contain only those tags.
    """

    def __init__(
        self,
        chunk_size: ChunkSize = ChunkSize.SIZE_5MB,
        sensitivity: SensitivityConfig | None = None,
        default_interval_margin: int = 0,
        tag_interval_margin: dict[str, int] | None = None,
        enabled_tags: list[str] | None = None,
        host: str | None = None,
    ) -> None:
        self.chunk_size = chunk_size
        self.sensitivity = sensitivity or SensitivityConfig(SensitivityScale.MEDIUM)
        self.default_interval_margin = default_interval_margin
        self.tag_interval_margin = tag_interval_margin or {}
        self.enabled_tags = enabled_tags or []
        self.host = host or default_host("/sense/api/v1")


class EventDetectionApiConfigFromJson(EventDetectionApiConfig):
    """The same options from a JSON file; `host` is set afterwards."""

    def __init__(self, config_json_path: str) -> None:
        """Read the file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not JSON, or names an unknown sensitivity.
        """
        if not os.path.isfile(config_json_path):
            raise FileNotFoundError(f"{config_json_path} not found")
        try:
            with open(config_json_path, encoding="utf-8") as file:
                content: dict[str, Any] = json.load(file)
        except ValueError:
            raise ValueError(f"{config_json_path}: not JSON") from None
        control = content.get("sensitivity_control", {})
        summary = content.get("result_summary", {})
        by_tags = {tag: SensitivityScale(level) for tag, level in (control.get("tag_sensitivity") or {}).items()}
        super().__init__(
            sensitivity=SensitivityConfig(SensitivityScale(control.get("default_sensitivity") or 0), by_tags),
            default_interval_margin=summary.get("default_interval_margin", 0),
            tag_interval_margin=summary.get("tag_interval_margin"),
            enabled_tags=content.get("tag_filter", {}).get("enabled_tags"),
        )


class IntegratedApiOptions:
    """Options of a job, as attributes; any further attributes are sent too."""

    def __init__(
        self, sound_event_detection: bool = True, speech_analysis: bool = True, audio_insights: bool = True
    ) -> None:
        self.sound_event_detection = sound_event_detection
        self.speech_analysis = speech_analysis
        self.speech_model = "whisper-large-turbo"
        self.speech_lang = "multi"
        self.speaker_diarization = speech_analysis
        self.speaker_profile = speech_analysis
        self.translation = False
        self.translation_target_lang = "en"
        self.audio_insights = audio_insights
        self.audio_insights_prompt: str | None = None
        self.caption = audio_insights


class SoundTag:
    """A recognised sound and its probability, 0 to 1."""

    def __init__(self, name: str, probability: float) -> None:
        self.name = name
        self.probability = probability

    def __str__(self) -> str:
        return str(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return name and probability."""
        return {"name": self.name, "probability": self.probability}


class WindowResult:
    """A window, in seconds, and the sounds that were recognised in it."""

    def __init__(self, start_time: float, end_time: float, sound_tags: list[SoundTag]) -> None:
        self.start_time = start_time
        self.end_time = end_time
        self.sound_tags = sound_tags

    def __str__(self) -> str:
        return str(self.to_dict())

    def to_str(self, enabled_tags: Iterable[str] | None = None) -> str:
        """Return `to_dict` as text."""
        return str(self.to_dict(enabled_tags))

    def to_dict(self, enabled_tags: Iterable[str] | None = None) -> dict[str, Any]:
        """Return times and tags; only the tags in `enabled_tags`, if it has any."""
        enabled = set(enabled_tags or ())
        tags = [tag.to_dict() for tag in self.sound_tags if not enabled or tag.name in enabled]
        return {"start_time": self.start_time, "end_time": self.end_time, "sound_tags": tags}


class EventDetectionResult:
    """The windows of a file, in order."""

    def __init__(self, session_id: str, window_results: list[WindowResult], window_hop: float) -> None:
        self.session_id = session_id
        self.window_results = window_results
        self._window_hop = window_hop

    def to_dict(self, config: EventDetectionApiConfig | None = None) -> dict[str, Any]:
        """Return the session's id and its windows."""
        enabled = [] if config is None else config.enabled_tags
        windows = [window.to_dict(enabled) for window in self.window_results]
        return {"session_id": self.session_id, "window_results": windows}

    def to_summarized_result(self, config: EventDetectionApiConfig) -> str:
        """Return a line for each stretch of windows with a tag, in the order in which the stretches end."""
        margins: Mapping[str, float] = config.tag_interval_margin
        enabled = set(config.enabled_tags)
        #: For each tag in progress: the margin that is left, and the start and end of its stretch.
        stretches: dict[str, tuple[float, float, float]] = {}
        lines = []
        for window in self.window_results:
            names = [tag.name for tag in window.sound_tags if tag.name != NO_SOUND]
            for name in names:
                if not enabled or name in enabled:
                    begin = stretches.get(name, (0.0, window.start_time))[1]
                    margin = margins.get(name, config.default_interval_margin)
                    stretches[name] = margin, begin, window.end_time
            for name in [name for name in stretches if name not in names]:
                margin, begin, end = stretches[name]
                stretches[name] = margin - self._window_hop, begin, end
                if stretches[name][0] < 0:
                    del stretches[name]
                    lines.append(_line(name, begin, end))
        lines += [_line(name, begin, end) for name, (_, begin, end) in stretches.items()]
        return "\n".join(lines)


class Result:
    """The result of `Client.predict`."""

    def __init__(self, events: EventDetectionResult) -> None:
        self.events = events

    def events_summarized(self, api_config: EventDetectionApiConfig) -> str:
        """Return the summary of the events."""
        return self.events.to_summarized_result(api_config)


def window_result(event: Event) -> WindowResult:
    """Convert a window to the vendor's names."""
    return WindowResult(event.start, event.end, [SoundTag(tag.name, tag.probability) for tag in event.tags])


def _line(name: str, begin: float, end: float) -> str:
    return f"At {begin:g}-{end:g}s, [{name}] was detected"
