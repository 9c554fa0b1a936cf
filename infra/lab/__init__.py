"""Measures and makes models; no service imports it."""

import streams.models  # noqa: F401 (before ONNX Runtime)
