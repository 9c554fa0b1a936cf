"""A trained sound net to an int8 ONNX graph: `log_mel` in, `scores` and `embedding` out."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn

from infra.lab.training.sound_net import SoundNet
from infra.models.front_end import FRONT_END
from streams.models.protocol import Floats

OPSET: Final = 17
#: Only convolutions (with the activation that is fused to them) are worth it; the last layer stays float.
QUANTISED: Final = ("Conv", "Relu")
OUTPUTS: Final = ("scores", "embedding")


class _ScoringNet(nn.Module):
    """What is exported: the logits become scores in 0..1."""

    def __init__(self, net: SoundNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, log_mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, embedding = self.net(log_mel)
        return torch.sigmoid(logits), embedding


class _PatchReader(CalibrationDataReader):
    """Patches one by one, as the calibration asks for them."""

    def __init__(self, patches: Floats) -> None:
        self._left: Iterator[dict[str, Floats]] = iter([{"log_mel": patch[None]} for patch in patches])

    def get_next(self) -> dict[str, Floats] | None:
        return next(self._left, None)


def quantise(net: SoundNet, calibration: Floats) -> bytes:
    """Return the ONNX file of `net`, the ranges of its activations taken from float32[n, 96, 64] patches.

    Weights have a scale a channel and 7 bits: with 8, processors without VNNI instructions saturate in the sums and
    give other scores than those with them.
    """
    with tempfile.TemporaryDirectory() as directory:
        plain, prepared, small = (Path(directory) / name for name in ("plain.onnx", "prepared.onnx", "small.onnx"))
        with warnings.catch_warnings():
            # That it is the older of two exporters; the newer one needs onnxscript besides.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                # In evaluation mode itself: the exporter puts a module back into the mode it came in, with all inside.
                _ScoringNet(net).eval(),
                (torch.zeros(2, FRONT_END.frames, FRONT_END.bands),),
                plain,
                dynamo=False,
                opset_version=OPSET,
                input_names=["log_mel"],
                output_names=list(OUTPUTS),
                dynamic_axes={name: {0: "n"} for name in ("log_mel", *OUTPUTS)},
            )
        # These graphs have no shapes that only the symbolic inference finds, and it fails on them.
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            small,
            _PatchReader(calibration),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(QUANTISED),
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        model = onnx.load(small)
    onnx.checker.check_model(model, full_check=True)
    graph: bytes = model.SerializeToString(deterministic=True)
    return graph
