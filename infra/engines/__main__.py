"""`python -m infra.engines DESCRIPTOR LEVEL FORM SPEECH`: the engine server as a service starts it."""

import sys

import msgspec

from infra import logs
from infra.engines.serving import serve_child
from infra.engines.speech.speech_models import SpeechSettings

if __name__ == "__main__":
    descriptor, level, form, speech = sys.argv[1:]
    logs.configure(level, form)
    serve_child(int(descriptor), msgspec.json.decode(speech, type=SpeechSettings))
