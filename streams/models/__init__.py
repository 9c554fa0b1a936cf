"""Sound-event models behind one protocol: manifest, ONNX Runtime, and the packing of scores."""
