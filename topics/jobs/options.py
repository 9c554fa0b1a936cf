"""The options of a job: its services, and the rules for combining them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from msgspec import Meta

#: The value of `speech_lang` that makes the engine detect the language.
ANY_LANGUAGE: Final = "multi"
#: Public clients always send this value, which means the deployment's own model.
DEFAULT_SPEECH_MODEL: Final = "whisper-large-turbo"
#: The most speakers of a recording that can be requested or expected.
MOST_SPEAKERS: Final = 32


class Service(StrEnum):
    """The services of a job; the value is the key of its entry in the result."""

    SOUND = "sound_event_detection"
    SPEECH = "speech_analysis"
    INSIGHTS = "audio_insights"
    CAPTION = "caption"
    TRANSLATION = "translation"


#: The services whose results a service needs: it begins once they have ended, whether with success or an error.
NEEDS: Final = {
    Service.INSIGHTS: (Service.SOUND, Service.SPEECH),
    Service.CAPTION: (Service.SOUND, Service.SPEECH),
    Service.TRANSLATION: (Service.SPEECH,),
}


#: `(?!\n)` because `$` would allow a final line break.
_Language = Annotated[str, Meta(pattern=r"^[A-Za-z-]{1,16}(?!\n)$")]
_SpeakerCount = Annotated[int, Meta(gt=0, lt=MOST_SPEAKERS + 1)]


def _told(flag: str | None, description: str, needs: str = "") -> Meta:
    """Describe an option: its flag of the command line (None if others set it), and what must be on for it."""
    text = f"{description}; needs `{needs}`." if needs else description
    return Meta(description=text, extra={"needs": needs, "flag": flag})


# The edge, the command line, the documents and the client take an option from here.
class Options(msgspec.Struct, frozen=True, array_like=True):
    """The options of the contract and of public clients, and ours; with what an omitted one means."""

    sound_event_detection: Annotated[bool, _told("--sounds/--no-sounds", "Recognise sounds, window by window.")] = False
    speech_analysis: Annotated[bool, _told("--speech/--no-speech", "Transcribe speech, by speaker.")] = False
    audio_insights: Annotated[
        bool,
        _told(None, "Describe the recording; needs `sound_event_detection` and `speech_analysis`, and `caption`."),
    ] = False
    caption: Annotated[bool, _told(None, "Describe it in a sentence; must equal `audio_insights`.")] = False
    speaker_profile: Annotated[bool, _told("--speakers", "Name registered speakers", "speech_analysis")] = False
    translation: Annotated[bool, _told(None, "Translate what is said", "speech_analysis")] = False
    #: None: on if speech is analysed.
    speaker_diarization: Annotated[
        bool | None,
        Meta(
            description="Tell speakers apart; by default if `speech_analysis` is on.",
            extra={"needs": "speech_analysis", "flag": "--diarization/--no-diarization"},
        ),
    ] = None
    #: None: the deployment's own.
    speech_model: Annotated[
        Annotated[str, Meta(min_length=1, max_length=128)] | None,
        _told(
            "--speech-model", "A model of the speech engine that the deployment allows; by default the engine's own."
        ),
    ] = None
    speech_lang: Annotated[
        _Language,
        _told("--speech-lang --lang", f"Language code of the speech; `{ANY_LANGUAGE}` lets the engine find it."),
    ] = ANY_LANGUAGE
    translation_target_lang: Annotated[_Language, _told(None, "Language code of the translation.")] = "en"
    #: The client's instruction for the insights, in addition to ours.
    audio_insights_prompt: Annotated[
        Annotated[str, Meta(max_length=16 * 1024)] | None, _told("--prompt", "What the insights should look at.")
    ] = None
    #: Our extension.
    word_times: Annotated[
        bool, _told("--word-times", "Return the times of words, if the engine has them", "speech_analysis")
    ] = False
    #: Our extension: hints for the speech engine.
    speech_prompt: Annotated[
        Annotated[str, Meta(max_length=1000)] | None,
        _told("--speech-prompt", "Names and terms that may be said, as hints for the speech engine."),
    ] = None
    #: Our extension; None if unknown.
    min_speakers: Annotated[
        _SpeakerCount | None, _told("--min-speakers", "At least this many people speak", "speaker_diarization")
    ] = None
    max_speakers: Annotated[
        _SpeakerCount | None, _told("--max-speakers", "At most this many people speak", "speaker_diarization")
    ] = None

    @property
    def services(self) -> tuple[Service, ...]:
        return tuple(service for service in Service if getattr(self, service))

    @property
    def diarizes(self) -> bool:
        return self.speech_analysis if self.speaker_diarization is None else self.speaker_diarization


#: What `_told` says of each option.
TOLD: Final[Mapping[str, Any]] = {
    name: hint.__metadata__[-1] for name, hint in get_type_hints(Options, include_extras=True).items()
}


def fault(options: Options) -> str | None:
    """Return the contract's message if options cannot be combined, otherwise None."""
    both = options.sound_event_detection and options.speech_analysis
    speech = options.speech_analysis
    if not (options.sound_event_detection or speech or options.audio_insights or options.caption):
        return "No services selected"
    if options.audio_insights and not both:
        return "audio_insights requires both speech_analysis and sound_event_detection to be true"
    if options.audio_insights is not options.caption:
        return "audio_insights and caption must be both true or both false"
    ready = {"": True, "speech_analysis": speech, "speaker_diarization": options.diarizes}
    for name, told in TOLD.items():
        if getattr(options, name) and not ready[needed := told.extra["needs"]]:
            return f"{name} requires {needed}: true"
    if (options.min_speakers or 1) > (options.max_speakers or MOST_SPEAKERS):
        return "min_speakers must not be greater than max_speakers"
    return None
