"""What jobs and recordings may be, as the service has it; `python -m tests.derived` writes this."""

from typing import Final

import msgspec


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a job. The service refuses options that lack others they need, and options that ask for nothing.

    Options that are not given have the service's defaults: no services, and speakers separated if speech is analysed.

    Attributes:
        sound_event_detection: recognise sounds, window by window.
        speech_analysis: transcribe speech, by speaker.
        audio_insights: describe the recording; needs `sound_event_detection` and `speech_analysis`, and `caption`.
        caption: describe it in a sentence; must equal `audio_insights`.
        speaker_profile: name registered speakers; needs `speech_analysis`.
        translation: translate what is said; needs `speech_analysis`.
        speaker_diarization: tell speakers apart; by default if `speech_analysis` is on.
        speech_model: a model of the speech engine that the deployment allows; by default the engine's own; at most 128
            characters.
        speech_lang: language code of the speech; `multi` lets the engine find it.
        translation_target_lang: language code of the translation.
        audio_insights_prompt: what the insights should look at; at most 16384 characters.
        word_times: return the times of words, if the engine has them; needs `speech_analysis`.
        speech_prompt: names and terms that may be said, as hints for the speech engine; at most 1000 characters.
        min_speakers: at least this many people speak; needs `speaker_diarization`; 1 to 32.
        max_speakers: at most this many people speak; needs `speaker_diarization`; 1 to 32.
    """

    sound_event_detection: bool = False
    speech_analysis: bool = False
    audio_insights: bool = False
    caption: bool = False
    speaker_profile: bool = False
    translation: bool = False
    speaker_diarization: bool | None = None
    speech_model: str | None = None
    speech_lang: str = "multi"
    translation_target_lang: str = "en"
    audio_insights_prompt: str | None = None
    word_times: bool = False
    speech_prompt: str | None = None
    min_speakers: int | None = None
    max_speakers: int | None = None


#: Bytes at the beginning of a file that identify its content type.
HEAD: Final = 12
#: How files of each content type begin: regular expressions in which a dot is any byte. The first that matches counts.
BEGINNINGS: Final = {
    "audio/wav": rb"(?:RIFF|RIFX|BW64)....WAVE|riff",
    "audio/rf64": rb"RF64....WAVE",
    "audio/aiff": rb"FORM....AIF[FC]",
    "audio/ogg": rb"OggS",
    "audio/flac": rb"fLaC",
    "audio/au": rb"\.snd",
    "audio/caf": rb"caff",
    "audio/webm": rb"\x1a\x45\xdf\xa3",
    "audio/x-ms-wma": rb"\x30\x26\xb2\x75",
    "audio/wavpack": rb"wvpk",
    # The first box of a QuickTime file; old files may have no `ftyp`.
    "audio/mp4": rb"....(?:ftyp|styp|moov|mdat|wide|free|skip)",
    "audio/ac3": rb"\x0b\x77",
    # Eleven bits of sync, then a known MPEG version and a layer from I to III.
    "audio/mp3": rb"\xff[\xe2-\xe7\xf2-\xf7\xfa-\xff]",
    # Twelve bits of sync and layer 0, which MPEG audio does not use.
    "audio/aac": rb"\xff[\xf0\xf1\xf8\xf9]",
}
#: What the service decodes.
KINDS: Final = (
    "WAV, MP3, Ogg, FLAC, AIFF, AU, CAF, MP4 (M4A, MOV, 3GP), Matroska (MKA, WebM), ASF (WMA), AAC, AC-3 or WavPack"
)
