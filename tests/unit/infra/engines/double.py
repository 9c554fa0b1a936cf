"""A worker process that returns text contained in the recording, for tests of its surroundings: a bare interpreter.

Recordings that begin with `hold` are answered after the next one that does not, in reverse order.
"""

import json
import os
import sys
import time
from typing import Any

held: list[str] = []
for line in sys.stdin.buffer:
    request = json.loads(line)
    if not request["path"]:
        print("dropped", request["number"], file=sys.stderr, flush=True)
        continue
    try:
        with open(request["path"], "rb") as file:
            order = file.read().decode()
    except FileNotFoundError:
        continue  # the sender has gone
    if order == "die":
        os._exit(3)
    if order == "hang":
        time.sleep(30)
    answer: dict[str, Any]
    if order == "bad":
        answer = {"type": "decoding-failure", "message": "the audio is bad"}
    elif order == "broken":
        answer = {"type": "engine-failure", "message": "no decoder"}
    elif order == "unloadable":
        answer = {"type": "load-failure", "message": "other weights"}
    elif order == "request":
        words = [[f" {name}={request[name]}", 0.0, 1.0, 0.5] for name in ("language", "likely", "task", "prompt")]
        answer = {"type": "transcript", "duration": 1.0, "words": words, "language": "english"}
    else:
        words = [[f" {word}", i + 0.25, i + 0.75, 0.5] for i, word in enumerate(order.split())]
        answer = {"type": "transcript", "duration": float(len(words)), "words": words}
    numbered = json.dumps({"number": request["number"], "answer": answer})
    if order.startswith("hold"):
        held.append(numbered)
        continue
    for one in (numbered, *reversed(held)):
        print(one, flush=True)
    held.clear()
