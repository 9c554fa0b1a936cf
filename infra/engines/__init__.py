"""The bundled engine server: speech, voices and sentences over public protocols, without network or GPU."""

from typing import Final

SPEECH_MODEL: Final = "whisper-base"
#: For small machines, English only; made by `make tiny`.
SMALL_MODEL: Final = "whisper-tiny.en"
SPEECH_MODELS: Final = (SPEECH_MODEL, SMALL_MODEL)
SPEAKER_MODEL: Final = "speaker-pair"
CHAT_MODEL: Final = "earshot-rules"
