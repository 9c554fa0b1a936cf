"""The bundled engine server: speech, voices and sentences over public protocols, with no network and no GPU."""

from typing import Final

SPEECH_MODEL: Final = "pocketsphinx-en-us-demo"
SPEAKER_MODEL: Final = "speaker-mini"
CHAT_MODEL: Final = "earshot-rules"
