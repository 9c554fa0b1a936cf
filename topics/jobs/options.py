"""The options of a job: its services, and the rules for combining them."""

from enum import StrEnum
from typing import Annotated, Final

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


class Options(msgspec.Struct, frozen=True, array_like=True):
    """The options of the contract and of public clients, and ours; with what an omitted one means."""

    sound_event_detection: Annotated[bool, Meta(description="Recognise sounds, window by window.")] = False
    speech_analysis: Annotated[bool, Meta(description="Transcribe speech, by speaker.")] = False
    audio_insights: Annotated[
        bool,
        Meta(description="Describe the recording; needs `sound_event_detection` and `speech_analysis`, and `caption`."),
    ] = False
    caption: Annotated[bool, Meta(description="Describe it in a sentence; must equal `audio_insights`.")] = False
    speaker_profile: Annotated[bool, Meta(description="Name registered speakers; needs `speech_analysis`.")] = False
    translation: Annotated[bool, Meta(description="Translate what is said; needs `speech_analysis`.")] = False
    #: None: on if speech is analysed.
    speaker_diarization: Annotated[
        bool | None, Meta(description="Tell speakers apart; by default if `speech_analysis` is on.")
    ] = None
    #: None: the deployment's own.
    speech_model: str | None = None
    #: A language code, or ANY_LANGUAGE.
    speech_lang: str = ANY_LANGUAGE
    translation_target_lang: str = "en"
    #: The client's instruction for the insights, in addition to ours.
    audio_insights_prompt: str | None = None
    #: Our extension.
    word_times: Annotated[
        bool, Meta(description="Return the times of words, if the engine has them; needs `speech_analysis`.")
    ] = False
    #: Our extension: names and terms that may occur, as hints for the speech engine.
    speech_prompt: str | None = None
    #: Our extension: the number of speakers, 1 to MOST_SPEAKERS; None if unknown.
    min_speakers: int | None = None
    max_speakers: int | None = None

    @property
    def services(self) -> tuple[Service, ...]:
        return tuple(service for service in Service if getattr(self, service))

    @property
    def diarizes(self) -> bool:
        return self.speech_analysis if self.speaker_diarization is None else self.speaker_diarization


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
    for name in ("speaker_profile", "translation", "speaker_diarization", "word_times"):
        if getattr(options, name) and not speech:
            return f"{name} requires speech_analysis: true"
    for name in ("min_speakers", "max_speakers"):
        if getattr(options, name) is not None and not options.diarizes:
            return f"{name} requires speaker_diarization: true"
    if (options.min_speakers or 1) > (options.max_speakers or MOST_SPEAKERS):
        return "min_speakers must not be greater than max_speakers"
    return None
