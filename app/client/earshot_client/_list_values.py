"""Lists of a project's sessions, jobs and alarms: queries and pages."""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from ._alarm_values import Alarm
from ._calls import Flow, Items
from ._errors import IncompleteList
from ._job_values import JobEntry
from ._missing_part import MissingPart
from ._session_values import SessionEntry
from ._times import Time, time_text

#: The most entries of a page.
LONGEST_PAGE: Final = 200


def list_query(
    token: str | None, state: str | None, since: Time | None, until: Time | None, count: int | None
) -> dict[str, str]:
    """Return the parameters of the page at a token, which includes all filters, or of the first page."""
    if token is not None:
        return {"next_token": token}
    fields = {"state": state, "since": time_text(since), "until": time_text(until), "count": count}
    return {name: str(value) for name, value in fields.items() if value is not None}


class SessionPage(msgspec.Struct, frozen=True, rename={"entries": "sessions", "token": "next_token"}):
    """Sessions of the project, newest first.

    Attributes:
        entries: the sessions.
        token: the token of the next page; None at the end.
        missing: the part on nodes that did not answer; None if all answered.
    """

    entries: tuple[SessionEntry, ...]
    token: str | None = None
    missing: MissingPart | None = None


class JobPage(msgspec.Struct, frozen=True, rename={"entries": "jobs", "token": "next_token"}):
    """Jobs of the project, newest first.

    Attributes:
        entries: the jobs.
        token: the token of the next page; None at the end.
        missing: the part on nodes that did not answer; None if all answered.
    """

    entries: tuple[JobEntry, ...]
    token: str | None = None
    missing: MissingPart | None = None


class AlarmPage(msgspec.Struct, frozen=True, rename={"entries": "alarms", "token": "next_token"}):
    """Alarms of the project, newest first.

    Attributes:
        entries: the alarms.
        token: the token of the next page; None at the end.
        missing: the part on nodes that did not answer; None if all answered.
    """

    entries: tuple[Alarm, ...]
    token: str | None = None
    missing: MissingPart | None = None


P = TypeVar("P", SessionPage, JobPage, AlarmPage)


def all_pages(page_at: Callable[[str | None], Flow[P]]) -> Flow[None]:
    """Yield the entries of all pages.

    Raises:
        IncompleteList: a page lacked a part.
    """
    token: str | None = None
    missing: MissingPart | None = None
    while True:
        page = yield from page_at(token)
        missing = page.missing or missing
        yield Items(page.entries)
        token = page.token
        if token is None:
            break
    if missing is not None:
        raise IncompleteList(f"{missing.partitions} of {missing.of} partitions are on nodes that did not answer")
