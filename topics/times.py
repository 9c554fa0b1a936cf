"""Text forms of times, for results and lists."""

from datetime import UTC, date, datetime, time
from typing import Final

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


def utc_time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def day_ms(day: date) -> int:
    """Return when a day begins in UTC (Unix time in ms)."""
    return int(datetime.combine(day, time(), UTC).timestamp()) * 1000


def iso_time(ms: int) -> str:
    """Return a time (Unix time in ms) as ISO 8601 such as `2026-01-02T03:04:05.678Z`."""
    return utc_time(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(ms: int, hours: bool = False) -> str:
    """Return a position in a recording as `MM:SS.ss`, or as `HH:MM:SS.ss` with `hours` or from one hour on."""
    minutes, hundredths = divmod(ms // 10, 6000)
    seconds = f"{hundredths // 100:02d}.{hundredths % 100:02d}"
    if hours or ms >= HOUR_MS:
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds}"
    return f"{minutes:02d}:{seconds}"
