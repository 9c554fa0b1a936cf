"""Logging: one line for each event, of ours and of libraries, without keys or audio."""

import logging
import os
import re
import select
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Final, TextIO

import structlog
from cachetools import LRUCache
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from topics import apikeys, keys

#: Seconds that a line waits for the reader of a full pipe, once; then lines are dropped until it reads again.
READER_SECONDS: Final = 1.0

#: Loggers of our own packages; all others log only warnings, and at level `debug` what they call information. Their own
#: debugging shows what they handle, such as names of speakers in the parameters of a statement.
ROOMS: Final = ("app", "streams", "topics", "infra", "earshot")

#: Kafka's clients write tens of lines a second while a broker is away. Each message is shown once in this time.
OFTEN: Final = frozenset({"aiokafka", "librdkafka"})
REPEAT_SECONDS: Final = 60.0
#: Any client can cause these lines as often as it likes. Each kind is shown once in this time: an operation with its
#: status and, if the service is at fault, its reason; or the code of a socket's close.
REQUESTS: Final = frozenset({"request refused", "request failed", "response cut off", "socket closed", "socket failed"})
REFUSAL_SECONDS: Final = 5.0
#: Kinds that are remembered; there are fewer.
MESSAGES: Final = 256

_NUMBER: Final = re.compile(r"\d+")
_HEADERS: Final = frozenset({"x-api-key", "x-org-key"})
#: A key header and its value, as in a message, the repr of a dict, or ASGI's pairs.
_HEADER: Final = re.compile(r"(?i)(x[-_](?:api|org)[-_]key\b['\"]?\s*[:=,]\s*b?)('[^']*'|\"[^\"]*\"|[^\s,;)\]}]+)")
#: An id in a path, as libraries log it; eight of its characters may be shown.
_PATH_ID: Final = re.compile(rf"(/(?:jobs|audio_sessions)/[0-9A-Za-z]{{{keys.SHOWN}}})[0-9A-Za-z]{{8,}}")
#: Any id, in an event of a library: it may be in a statement, a key of a record, or an error.
_ID: Final = re.compile(rf"\b([0-9A-Za-z]{{{keys.SHOWN}}})[0-9A-Za-z]{{{keys.ID_LENGTH - keys.SHOWN}}}\b")
#: Base64 of this length is audio, or nothing that a log needs.
_BLOB: Final = re.compile(r"[A-Za-z0-9+/_=-]{256,}")


def configure(
    level: str = "info",
    form: str = "json",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    node: str | None = None,
    lane: int | None = None,
) -> None:
    """Send all logging of the process to `stream`, replacing any earlier setup.

    Args:
        level: least severe event of ours; libraries log warnings and worse, with `debug` information too.
        form: `json` or `console`.
        secrets: values to redact besides keys of our own form, such as keys that an operator chose.
        stream: stderr by default, where lines are dropped if nobody reads them.
        node: what the lines call this node; the machine's name by default. They have its version and process id too.
        lane: the number of this process among the lanes of its machine, if there are several.
    """
    stream = stream or sys.stderr
    ours = logging.getLevelNamesMapping()[level.upper()]
    theirs = logging.INFO if ours == logging.DEBUG else max(ours, logging.WARNING)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "json":
        origin: dict[str, str | int] = {
            "node": node or socket.gethostname(),
            "version": metadata.version("earshot-server"),
        }
        shared.append(_Origin(origin if lane is None else {**origin, "lane": lane}))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(_Unblocked(stream) if stream is sys.stderr else stream)
    if ours > logging.DEBUG:
        handler.addFilter(Repeats())
    handler.setFormatter(ProcessorFormatter(foreign_pre_chain=shared, processors=_last(form, stream, secrets)))
    logging.basicConfig(handlers=[handler], level=theirs, force=True)
    for room in ROOMS:
        logging.getLogger(room).setLevel(ours)
    # Its information is every statement.
    logging.getLogger("sqlalchemy").setLevel(logging.WARNING)
    # It warns of every malformed form of a client, which the refusal already reports.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    logging.captureWarnings(True)


class _Origin:
    """A processor that says which process of which node an event comes from."""

    def __init__(self, known: Mapping[str, str | int]) -> None:
        self._known = known

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        return {**self._known, "pid": os.getpid(), **event}


def _is_news(record: logging.LogRecord) -> bool:
    # An answer is cut off on purpose when its key ends or its body fails. The edge logs that with the reason.
    return record.msg != "ASGI callable returned without completing response."


class _Unblocked:
    """Writes to a stream's file, but drops lines while it is a full pipe: nothing may wait for the reader of a log."""

    def __init__(self, stream: TextIO) -> None:
        self._encoding = stream.encoding
        self._file = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)
        self._is_read = True
        self._is_torn = False

    def write(self, text: str) -> None:
        """Write a line, or drop the rest of it. The handler's lock is held."""
        data = b"\n" * self._is_torn + text.encode(self._encoding, "backslashreplace")
        for at in range(0, len(data), select.PIPE_BUF):
            self._is_read = bool(self._poll.poll(READER_SECONDS * 1000 * self._is_read))
            if not self._is_read:
                self._is_torn |= at > 0
                return
            os.write(self._file, data[at : at + select.PIPE_BUF])
        self._is_torn = False


class Repeats(logging.Filter):
    """Drops messages of Kafka's clients, and lines about requests, of kinds just shown; the next one has their number.

    Messages that differ only in values are of one kind; those with exceptions of different types are not.
    """

    def __init__(self) -> None:
        super().__init__()
        #: When each message was last shown, and how many were dropped since.
        self._shown: LRUCache[object, tuple[float, int]] = LRUCache(MESSAGES)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a record. Loop only, because those clients and the edge log there."""
        event = record.msg if isinstance(record.msg, dict) else {}
        kind: tuple[object, ...]
        if record.name.split(".")[0] in OFTEN:
            kind, seconds = (record.name, record.levelno, _NUMBER.sub("0", str(record.msg))), REPEAT_SECONDS
        elif event.get("event") in REQUESTS:
            kind, seconds = tuple(event.get(name) for name in ("event", "operation", "status", "code")), REFUSAL_SECONDS
            if (event.get("status") or 0) >= 500:
                kind = (*kind, _NUMBER.sub("0", str(event.get("reason"))))
        else:
            return True
        exception = record.exc_info or event.get("exc_info")
        kind = (*kind, exception[0] if isinstance(exception, tuple) else type(exception))
        now = time.monotonic()
        at, left_out = self._shown.get(kind, (now - seconds, 0))
        if now - at < seconds:
            self._shown[kind] = at, left_out + 1
            return False
        self._shown[kind] = now, 0
        if left_out and event:
            record.msg = {**event, "left_out": left_out}
        elif left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out} more since the last such line)", ()
        return True


def _last(form: str, stream: TextIO, secrets: Iterable[str]) -> list[Processor]:
    """Return the processors that run once on all events: tracebacks to text, then redaction, then the line."""
    plain = structlog.dev.plain_traceback
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)
        if form == "console"
        else structlog.processors.JSONRenderer()
    )
    return [
        ProcessorFormatter.remove_processors_meta,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        Redactor(secrets),
        renderer,
    ]


class Redactor:
    """A processor that redacts keys, given secrets and audio at any depth of an event; in those of libraries, ids."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = {secret: apikeys.redact(secret) for secret in secrets if secret}

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        shown = {self._text(key): self._value(key, value) for key, value in event.items()}
        if str(event.get("logger", "")).split(".")[0] not in ROOMS:
            shown = {key: _ID.sub(r"\1…", value) if isinstance(value, str) else value for key, value in shown.items()}
        return shown

    def _value(self, name: object, value: object) -> object:
        plain = name.decode("latin-1") if isinstance(name, bytes) else str(name)
        return "[redacted]" if plain.lower().replace("_", "-") in _HEADERS else self._clean(value)

    def _clean(self, value: object) -> object:
        match value:
            case None | bool() | int() | float():
                return value
            case bytes() | bytearray() | memoryview():
                return f"<{len(value)} bytes>"
            case Mapping():
                return {self._text(str(key)): self._value(key, item) for key, item in value.items()}
            case (str() | bytes() as name, item):
                return [self._clean(name), self._value(name, item)]
            case list() | tuple() | set() | frozenset():
                return [self._clean(item) for item in value]
            case _:
                return self._text(str(value))

    def _text(self, text: str) -> str:
        for secret, shown in self._secrets.items():
            text = text.replace(secret, shown)
        text = _PATH_ID.sub(r"\1…", _HEADER.sub(r"\1[redacted]", apikeys.redact_all(text)))
        return _BLOB.sub(lambda match: f"<{len(match.group())} characters>", text)
