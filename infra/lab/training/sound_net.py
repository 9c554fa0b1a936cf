"""The net of sed-mini and its training on labels and on YAMNet's outputs for the same patches."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from infra.lab.training import augment
from infra.lab.training.clips import LABELS
from infra.lab.training.material import SHARES, Material, draw_chances
from infra.teaching.operating_points import Doubles, Indices
from streams.models.protocol import Floats

#: Channels, stride and kernel size of each convolution.
LAYERS: Final = ((32, 4, 7), (80, 2, 3), (80, 1, 3), (160, 2, 3), (160, 1, 3), (160, 1, 3))
WIDTH: Final = LAYERS[-1][0]
BATCH: Final = 32
#: Peak learning rate (AdamW), reached after a tenth of the steps; then it falls to zero on a cosine.
RATE: Final = 2e-3
DECAY: Final = 0.02
#: Middle and spread of log-mels over the material; the net's input is (x - middle) / spread.
MIDDLE, SPREAD = -3.0, 2.5
#: Weights of the losses against the teacher's scores and embedding; the loss against the labels has weight 1.
SCORES, EMBEDDING = 0.2, 2.0


class SoundNet(nn.Module):
    """Maps log-mel float32[n, 96, 64] to class logits [n, 11] and a non-negative embedding [n, 160]."""

    def __init__(self) -> None:
        super().__init__()
        inputs = [1, *(channels for channels, *_ in LAYERS)]
        self.trunk = nn.Sequential(
            *(_convolution(few, many, *rest) for few, (many, *rest) in zip(inputs, LAYERS, strict=False))
        )
        self.head = nn.Linear(inputs[-1], len(LABELS))

    def forward(self, log_mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image = ((log_mel - MIDDLE) / SPREAD).unsqueeze(1)
        embedding = self.trunk(image).mean((2, 3))
        return self.head(functional.dropout(embedding, 0.2, self.training)), embedding


def _convolution(few: int, many: int, stride: int, size: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(few, many, size, stride, size // 2, bias=False), nn.BatchNorm2d(many), nn.ReLU(inplace=True)
    )


def train(material: Material, steps: int, seed: int, report: Callable[[str], None] = print) -> SoundNet:
    """Train a net from scratch on `material`, 32 patches per step, and return it in evaluation mode.

    Loss: binary cross-entropy against the labels and against the teacher's 521 scores, each summed over classes, and
    the share of the variance of the teacher's embedding that a linear map of the net's embedding leaves unexplained.
    """
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    random = np.random.default_rng(seed)
    net = SoundNet().to(memory_format=torch.channels_last)
    pupil = nn.Linear(WIDTH, material.scores.shape[1] + material.embeddings.shape[1])
    parameters = [*net.parameters(), *pupil.parameters()]
    optimiser = torch.optim.AdamW(parameters, RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _learning_rate_factor(step / steps))
    variance = float(material.embeddings.astype(np.float32).var(axis=0).sum())
    chances = draw_chances(material)
    made_up = np.flatnonzero(material.groups == list(SHARES).index("synthetic"))
    net.train()
    for step in range(steps):
        log_mel, labels, scores, embeddings = _batch(material, chances, made_up, random)
        logits, embedding = net(log_mel)
        guessed = pupil(embedding)
        loss = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").sum(1).mean()
        taught = functional.binary_cross_entropy_with_logits(guessed[:, : scores.shape[1]], scores, reduction="none")
        copied = (guessed[:, scores.shape[1] :] - embeddings).square().sum(1).mean() / variance
        optimiser.zero_grad(set_to_none=True)
        (loss + SCORES * taught.sum(1).mean() + EMBEDDING * copied).backward()
        optimiser.step()
        schedule.step()
        if step % 400 == 399:
            report(f"step {step + 1}: labels {loss:.3f}, scores {taught.sum(1).mean():.3f}, embedding {copied:.3f}")
    return net.eval()


def _learning_rate_factor(progress: float) -> float:
    return min(progress / 0.1, 1.0) * 0.5 * (1.0 + math.cos(math.pi * max(0.0, progress - 0.1) / 0.9)) + 1e-3


def _batch(
    material: Material, chances: Doubles, made_up: Indices, random: np.random.Generator
) -> tuple[torch.Tensor, ...]:
    """Return augmented patches, wanted class scores, and the teacher's scores and embedding.

    The teacher scored each patch alone, so its scores are mixed like labels. Its embedding of the mixture is unknown,
    so that of the foreground sound is used.
    """
    rows = random.choice(len(chances), BATCH, p=chances)
    others = random.choice(len(chances), BATCH, p=chances)
    noise = random.choice(made_up, BATCH)
    classes = material.labels.shape[1]

    def wanted(chosen: Indices) -> Floats:
        return np.concatenate((material.labels[chosen], material.scores[chosen].astype(np.float32)), axis=1)

    patches, mixed = augment.vary(
        material.patches[rows].astype(np.float32),
        wanted(rows),
        material.patches[others].astype(np.float32),
        wanted(others),
        material.patches[noise].astype(np.float32),
        random,
    )
    embeddings = material.embeddings[rows].astype(np.float32)
    parts = (patches, mixed[:, :classes], mixed[:, classes:], embeddings)
    return tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
