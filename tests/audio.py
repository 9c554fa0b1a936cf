"""Synthetic audio for tests, and files of it. Samples are float32 in -1..1, rates are in Hz."""

import io
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import soundfile

from streams.models.protocol import Floats

#: The default rate.
RATE = 16_000


def noise(count: int, seed: int = 0) -> Floats:
    """Return white noise, float32[count], with a standard deviation of 0.1."""
    return (0.1 * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def sine(seconds: float, hertz: float = 440.0, rate: int = RATE) -> Floats:
    """Return a tone of full scale, float32[seconds * rate]."""
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


#: Seconds from the start of one warble to the next.
WARBLE_S = 5


def warbles(*numbers: int) -> Floats:
    """Return a warble per number, float32[5 * RATE * numbers]: three seconds of sound and two of near silence.

    With the number rise the tone's pitch, its modulation rate and the noise.
    """
    seconds = np.arange(WARBLE_S * RATE) / RATE

    def one(number: int) -> npt.NDArray[np.float64]:
        swing = 25 * np.sin(2 * np.pi * (6 + number / 2) * seconds)
        tone = 0.3 * np.sin(2 * np.pi * (700 + 90 * number) * seconds + swing)
        hiss = np.random.default_rng(number).normal(0, 0.002 + 0.001 * number, len(seconds))
        return np.where(seconds < 3, tone, 0) + hiss

    return np.concatenate([one(number) for number in numbers]).astype(np.float32)


def encoded(samples: npt.ArrayLike, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Return samples [n] or [n, channels] as a file in a libsndfile format, by default with its usual subtype."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


def muxed(
    samples: npt.ArrayLike,
    rate: int,
    muxer: str,
    encoder: str | None,
    *,
    gap: tuple[float, float] = (0.0, 0.0),
    video_s: float = 0.0,
    options: dict[str, str] | None = None,
) -> bytes:
    """Return samples [n] or [n, channels] in a container of FFmpeg, without audio if `encoder` is None.

    All that follows a time comes later by a gap: both in seconds. With video, black pictures begin at 0.
    """
    frames = np.asarray(samples, np.float32)
    frames = frames[:, None] if frames.ndim == 1 else frames
    layout = ("mono", "stereo")[frames.shape[1] - 1]
    file = io.BytesIO()
    with av.open(file, "w", format=muxer, options=options or {}) as out:
        streams: list[Any] = []
        if video_s:
            picture: Any = out.add_stream("mpeg4" if muxer != "webm" else "libvpx", rate=5)
            picture.width, picture.height, picture.pix_fmt = 64, 48, "yuv420p"
            streams.append(picture)
        if encoder is not None:
            sound: Any = out.add_stream(encoder, rate=rate, layout=layout)
            sound.bit_rate = 128_000
            streams.append(sound)
        for number in range(round(5 * video_s)):
            black = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
            black.pts, black.time_base = number, Fraction(1, 5)
            out.mux(picture.encode(black))
        formats = [] if encoder is None else [form.name for form in sound.codec_context.codec.audio_formats]
        form = next((name for name in ("fltp", "flt", "s16", "s16p") if name in formats), "s32p")
        size = rate // 50
        for at in range(0, len(frames) if encoder else 0, size):
            data = _converted(frames[at : at + size], form)
            frame = av.AudioFrame.from_ndarray(data, format=form, layout=layout)
            frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
            frame.pts = at + (round(gap[1] * rate) if at >= gap[0] * rate else 0)
            out.mux(sound.encode(frame))
        for stream in streams:
            out.mux(stream.encode(None))
    return file.getvalue()


def _converted(frames: Floats, form: str) -> npt.NDArray[Any]:
    """Return frames [n, channels] in one of FFmpeg's formats of samples."""
    scale = {"s16": 2**15 - 1, "s32": 2**31 - 129}.get(form.removesuffix("p"), 1)
    kind = {"s16": np.int16, "s32": np.int32}.get(form.removesuffix("p"), np.float32)
    values = np.ascontiguousarray(np.clip(frames, -1, 1).astype(np.float64) * scale).astype(kind)
    return np.ascontiguousarray(values.T) if form.endswith("p") else values.reshape(1, -1)
