"""Parts of the descriptions of several rooms: keys, headers and errors."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec

from app.cluster.cursors import ListCursors
from app.cluster.lists import COUNT, NOBODY, read_states, read_time
from app.http.call import KEY_LENGTH
from app.http.descriptions import Description, Fault, Key, Parameter, fault_of, integer_query, json_answer, operation
from app.http.errors import RequestTimeout
from app.identity.keys import ORGANIZATION, PROJECT, KeyHeader
from topics.errors import DirectoryDown, Unauthorized, Unavailable

PROJECT_KEY: Final = Key("projectKey")
ORGANIZATION_KEY: Final = Key("organizationKey")


def _key_faults(kind: KeyHeader) -> tuple[Fault, ...]:
    return Unauthorized(kind.missing), Unauthorized(kind.unknown), DirectoryDown(kind.unverified, uncertain=False)


#: Errors of keys by scheme. The first is for a request without a key.
KEY_FAULTS: Final = {
    "projectKey": _key_faults(PROJECT),
    "projectBearer": _key_faults(PROJECT),
    "organizationKey": _key_faults(ORGANIZATION),
}
#: Internal faults, and a lack of room or of an owner; nothing was accepted.
BROKEN: Final = (500, Unavailable("the queue is full"))
SLOW: Final = RequestTimeout("the request did not arrive in time")
#: Headers of server-sent events.
NO_BUFFERS: Final = {"Cache-Control": "Do not cache.", "X-Accel-Buffering": "Proxies must not buffer it."}

IDEMPOTENCY_KEY: Final = Parameter(
    "Idempotency-Key",
    "header",
    Annotated[str, msgspec.Meta(max_length=KEY_LENGTH)],
    "Any text that identifies this request: a repeat with the same key gets the first answer, and is not carried out "
    "again.",
    example="door-2026-11-22",
)

#: Common to the lists of a project, after their own text.
LIST_TEXT: Final = (
    "`next_token` overrides the other parameters; following it page by page returns each entry once, and none that "
    "came later. The last page has no `next_token`. Entries on nodes that do not answer are left out: `missing` "
    "counts their partitions."
)
_ZONELESS: Final = "ISO 8601; in UTC if no zone is given."
_Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]


def list_parameters(states: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameters of a list whose entries have one of these states, if any."""
    one = f"({'|'.join(states)})"
    several = Annotated[str, msgspec.Meta(pattern=f"^({one}(,{one})*)?$")]
    state = Parameter("state", "query", several, f"States, comma-separated: {', '.join(states)}; by default all.")
    return (
        *((state,) if states else ()),
        Parameter("since", "query", _Time, f"Created at this time or later: {_ZONELESS}"),
        Parameter("until", "query", _Time, f"Created before this time: {_ZONELESS}"),
        integer_query(COUNT),
        Parameter("next_token", "query", str, "The token of the earlier page.", example=""),
    )


def listing(route: str, name: str, states: Sequence[str], **pages: msgspec.Struct) -> Description:
    """Return the description of a list, by its name and the states of its entries, with pages as examples."""
    return operation(
        route,
        key=PROJECT_KEY,
        parameters=list_parameters(states),
        answers=json_answer("A page.", headers={}, **pages),
        faults=partial(list_faults, name, states),
        text=LIST_TEXT,
    )


def list_faults(name: str, states: Sequence[str]) -> tuple[Fault, ...]:
    """Return the errors of a list, by its name and the states of its entries."""
    return (
        *((fault_of(read_states, {"state": "gone"}, states),) if states else ()),
        fault_of(read_time, {"since": "yesterday"}, "since", 0),
        fault_of(COUNT.read, {COUNT.name: "0"}),
        fault_of(ListCursors(bytes(16)).read, name, "project", "no-token"),
        Unavailable(NOBODY),
        *BROKEN,
    )
