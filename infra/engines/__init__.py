"""The bundled engine server: speech, voices and sentences over public protocols, with no network and no GPU."""

from typing import Final

SPEECH_MODEL: Final = "whisper-base"
#: For small machines, English alone; made by `make tiny`.
SMALL_MODEL: Final = "whisper-tiny.en"
#: What stands in where the others cannot be loaded.
DEMO_MODEL: Final = "pocketsphinx-en-us-demo"
SPEECH_MODELS: Final = (SPEECH_MODEL, SMALL_MODEL, DEMO_MODEL)
SPEAKER_MODEL: Final = "speaker-pair"
CHAT_MODEL: Final = "earshot-rules"
