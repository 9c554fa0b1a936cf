"""Heads: logistic regressions on a model's embedding that add tags to the model or improve its own."""

import io
from pathlib import Path

import numpy as np

from streams.models import runtime
from streams.models.manifest import Heads
from streams.models.protocol import Floats
from topics.errors import EngineError


def read(directory: Path, heads: Heads) -> Floats:
    """Return the weights, float32[heads, dimension + 1], with the biases in the last column.

    Raises:
        EngineError: the file is missing, has another SHA-256, or holds no such array; a message of one line.
    """
    path = directory / heads.file
    content = runtime.read_file(path, heads.sha256)
    try:
        weights: Floats = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise EngineError(f"{path}: {runtime.first_line(error)}") from error
    if weights.dtype != np.float32 or weights.ndim != 2 or weights.shape[1] < 2 or not np.isfinite(weights).all():
        raise EngineError(f"{path}: {weights.dtype} {weights.shape}, expected finite float32 [heads, dimension + 1]")
    return weights


def scores(weights: Floats, embedding: Floats) -> Floats:
    """Return float32[heads] in 0..1 for an embedding, float32[dimension]."""
    return logistic(logits(weights, embedding))


def logits(weights: Floats, embedding: Floats) -> Floats:
    """Return the logits of `scores`, float32[heads]."""
    return weights[:, :-1] @ embedding + weights[:, -1]


def logistic(logits: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)) of each number."""
    with np.errstate(over="ignore"):
        scores: Floats = np.float32(1.0) / (np.float32(1.0) + np.exp(-logits))
    return scores
