"""Times in requests."""

from datetime import UTC, datetime

#: A time as ISO 8601 text or as an object; without a time zone it is in UTC.
Time = str | datetime


def time_text(time: Time | None) -> str | None:
    if not isinstance(time, datetime):
        return time
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat().replace("+00:00", "Z")
