"""The bundled engine server: speech and sentences over public protocols, with no network and no GPU."""

from typing import Final

SPEECH_MODEL: Final = "pocketsphinx-en-us-demo"
CHAT_MODEL: Final = "earshot-rules"
