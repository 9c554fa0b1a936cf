"""The bundled engine server: speech, voices and sentences over public protocols, without network or GPU."""

import sys
from typing import Final

#: Starts the engine server (`__main__.py`).
COMMAND: Final = (sys.executable, "-m", __name__)

SPEECH_MODEL: Final = "whisper-base"
#: For small machines, English only; made by `make tiny`.
SMALL_MODEL: Final = "whisper-tiny.en"
SPEECH_MODELS: Final = (SPEECH_MODEL, SMALL_MODEL)
SPEAKER_MODEL: Final = "speaker-pair"
CHAT_MODEL: Final = "earshot-rules"
