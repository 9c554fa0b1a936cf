"""Converts a trained sound net into an int8 ONNX graph: `log_mel` in, `scores` and `embedding` out."""

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

from infra.lab.converters.front_end import FRONT_END
from infra.lab.training.sound_net import SoundNet
from streams.models.protocol import Floats

OPSET: Final = 17
#: Only convolutions, with their fused activations, are worth quantising; the last layer stays float.
QUANTISED: Final = ("Conv", "Relu")
OUTPUTS: Final = ("scores", "embedding")


class _ScoringNet(nn.Module):
    """The exported net, whose logits become scores in 0..1."""

    def __init__(self, net: SoundNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, log_mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits, embedding = self.net(log_mel)
        return torch.sigmoid(logits), embedding


class _PatchReader(CalibrationDataReader):
    def __init__(self, patches: Floats) -> None:
        self._left: Iterator[dict[str, Floats]] = iter([{"log_mel": patch[None]} for patch in patches])

    def get_next(self) -> dict[str, Floats] | None:
        return next(self._left, None)


def quantise(net: SoundNet, calibration: Floats) -> bytes:
    """Return the int8 ONNX file of `net`; float32[n, 96, 64] patches calibrate the ranges of its activations.

    Weights have 7 bits and a scale per channel. With 8 bits, sums saturate on processors without VNNI instructions and
    scores differ.
    """
    with tempfile.TemporaryDirectory() as directory:
        plain, prepared, small = (Path(directory) / name for name in ("plain.onnx", "prepared.onnx", "small.onnx"))
        with warnings.catch_warnings():
            # torch warns that this exporter is the older one; the newer one needs the package onnxscript.
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.onnx.export(
                # Use evaluation mode, because the exporter restores the mode of the module and its children.
                _ScoringNet(net).eval(),
                (torch.zeros(2, FRONT_END.frames, FRONT_END.bands),),
                plain,
                dynamo=False,
                opset_version=OPSET,
                input_names=["log_mel"],
                output_names=list(OUTPUTS),
                dynamic_axes={name: {0: "n"} for name in ("log_mel", *OUTPUTS)},
            )
        # Symbolic shape inference fails on these graphs, and they do not need it.
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
    return model.SerializeToString(deterministic=True)
