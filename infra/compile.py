"""`python -m infra.compile`: compiles the audio kernels into their cache, so that the first start need not."""

from __future__ import annotations

from streams.audio.warm import warm_kernels

if __name__ == "__main__":
    warm_kernels()
