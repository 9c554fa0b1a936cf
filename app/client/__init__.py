"""Python client of the service: sessions, chunks and events."""

from app.client._async import AsyncClient
from app.client._client import Client
from app.client._errors import (
    Busy,
    EarshotClientError,
    NoSession,
    Refused,
    SessionClosed,
    SessionFailed,
    UnknownFormat,
    Unreachable,
    WrongKey,
    WrongSequence,
)
from app.client._models import Event, Kind, Opening, Run, Runs, Sensitivity, Session, Status, Tag

__all__ = [
    "AsyncClient",
    "Busy",
    "Client",
    "EarshotClientError",
    "Event",
    "Kind",
    "NoSession",
    "Opening",
    "Refused",
    "Run",
    "Runs",
    "Sensitivity",
    "Session",
    "SessionClosed",
    "SessionFailed",
    "Status",
    "Tag",
    "UnknownFormat",
    "Unreachable",
    "WrongKey",
    "WrongSequence",
]
