"""`python -m infra.compile`: compiles the audio kernels into their cache, so that the first start need not."""

from streams.audio.warm import warm_kernels

if __name__ == "__main__":
    warm_kernels()
