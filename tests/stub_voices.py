"""The stub's speaker engine: the bundled model in this process, which may claim to be another one."""

import io
import re
from functools import cache
from threading import Lock
from typing import Any, Final

import numpy as np
import soundfile

from infra import models
from streams.audio.resample import Resampler
from streams.voice.speaker_engine import OnnxSpeakerEngine

#: Requests come in threads, and msgspec crashes if two threads are the first to decode a type.
_LOADING: Final = Lock()


@cache
def _loaded() -> OnnxSpeakerEngine:
    return OnnxSpeakerEngine(models.directory(models.SPEAKERS))


def _engine() -> OnnxSpeakerEngine:
    with _LOADING:
        return _loaded()


def embedding(body: bytes, headers: dict[str, str], sha256: str | None) -> dict[str, Any]:
    """Answer an upload; `sha256` is the claimed hash of the weights, None for the true one."""
    engine = _engine()
    known = engine.manifest
    samples, rate = soundfile.read(io.BytesIO(_file(body, headers)), dtype="float32", always_2d=True)
    resampler = Resampler(rate, known.input.sample_rate)
    vector = engine.embed(np.concatenate([resampler.feed(samples.mean(axis=1)), resampler.finish()]))
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": vector.tolist()}],
        "model": known.model_id,
        "usage": {"prompt_tokens": 0, "total_tokens": 0},
        "sha256": sha256 or known.graph.sha256,
        "threshold": known.identification_settings.threshold,
        "dimension": known.dimension,
    }


def _file(body: bytes, headers: dict[str, str]) -> bytes:
    """Return the part `file` of a multipart body."""
    kind = {name.lower(): value for name, value in headers.items()}["content-type"]
    boundary = re.search(r'boundary="?([^";]+)', kind)
    assert boundary is not None
    for part in body.split(b"--" + boundary[1].encode()):
        head, _, data = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return data.removesuffix(b"\r\n")
    raise AssertionError("no file was sent")
