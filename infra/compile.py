"""`python -m infra.compile`: compiles the audio kernels into their cache, to save the first start from it."""

from streams.audio.warm import warm_kernels

if __name__ == "__main__":
    warm_kernels()
