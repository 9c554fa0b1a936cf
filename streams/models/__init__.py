"""Sound-event models behind one protocol: manifest, ONNX Runtime, and the packing of scores."""

import os

# ONNX Runtime would send usage data to its maker, and do so from a thread, which a process that forks may not have. It
# reads this only when it is loaded, and whoever loads it comes past here.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
