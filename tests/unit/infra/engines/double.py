"""A worker process that hears what the recording says, for tests of what is around it: a bare interpreter."""

import json
import os
import sys
import time
from typing import Any

for line in sys.stdin.buffer:
    with open(line.rstrip(b"\n"), "rb") as file:
        order = file.read().decode()
    if order == "die":
        os._exit(3)
    if order == "hang":
        time.sleep(30)
    answer: dict[str, Any]
    if order == "bad":
        answer = {"type": "decoding-failure", "message": "the audio is bad"}
    elif order == "broken":
        answer = {"type": "engine-failure", "message": "no decoder"}
    else:
        words = [[word, i + 0.25, i + 0.75, 0.5] for i, word in enumerate(order.split())]
        answer = {"type": "transcript", "duration": float(len(words)), "words": words}
    print(json.dumps(answer), flush=True)
