"""Operations of the operator's interface on the nodes of the service: how they are, and their dead letters."""

from typing import Final

import msgspec

from app.admin.admin_bodies import LETTER, NODES, Drain, PutBack
from app.admin.guard import AdminContext
from app.admin.operations import FAULTS, OPERATOR_KEY
from app.cluster.forwarding import NO_ANSWER
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import Answer, Answers, Description, Parameter, fault_of, json_answer, json_body, operation
from app.http.replies import Reply, StreamReply
from topics.errors import DirectoryDown, NotFound, Unavailable
from topics.ports.nodes import NEWEST_PARKED

_DRAIN: Final = msgspec.json.Decoder(Drain)

NEWEST: Final = f"newest {NEWEST_PARKED}"
WITHOUT_DATABASE: Final = tuple(fault for fault in FAULTS if not isinstance(fault, DirectoryDown))


@operation(
    "GET /nodes",
    key=OPERATOR_KEY,
    answers=json_answer("The nodes.", two=NODES),
    faults=WITHOUT_DATABASE,
)
async def list_nodes(call: Call, context: AdminContext) -> Reply:
    """See how the nodes are.

    For each node: its partitions and how far they are folded, its queues and their limits, workers, engines, disks, and
    the {NEWEST} unreadable records. The node you ask asks the others; one that does not answer is listed
    with the reason.
    """
    return await context.nodes.reply(call)


@operation(
    "POST /nodes/drain",
    key=OPERATOR_KEY,
    bodies=json_body(second=Drain("http://node-2:8000")),
    answers={204: Answer("It begins to stop.")},
    faults=lambda: (
        *WITHOUT_DATABASE,
        fault_of(decode, _DRAIN, b"{}"),
        NotFound("there is no node http://node-9:8000; there are http://node-1:8000"),
        Unavailable(NO_ANSWER),
    ),
)
async def drain_node(call: Call, context: AdminContext) -> Reply | StreamReply:
    """Stop a node.

    It is not ready from now on, takes no new sessions, gives its partitions to the other nodes, forwards to them for
    some seconds, and ends. What supervises its process decides whether it starts again.
    """
    body = await call.body(SMALL_BODY)
    return await context.nodes.drain(call, decode(_DRAIN, body).url, body)


def _letter(method: str, answers: Answers) -> Description:
    example = f"{LETTER.topic}/{LETTER.partition}/{LETTER.offset}"
    place = Parameter(
        "reference", "path", str, "Topic, partition and offset of the record.", required=True, example=example
    )
    faults = (NotFound(f"there is no dead letter {example}"), Unavailable(NO_ANSWER))
    return operation(
        f"{method} /dead-letters/{{reference:path}}",
        key=OPERATOR_KEY,
        parameters=(place,),
        answers=answers,
        faults=(*WITHOUT_DATABASE, *faults),
    )


@_letter("GET", json_answer("The record.", one=LETTER))
async def read_dead_letter(call: Call, context: AdminContext) -> Reply | StreamReply:
    """Read a record that was set aside.

    A node sets a record aside that it cannot read, and keeps it for a week. `GET /nodes` lists the newest.
    """
    return await context.nodes.dead_letter(call, call.path("reference"))


@_letter("POST", json_answer("It is in its topic again.", one=PutBack(29)))
async def put_dead_letter_back(call: Call, context: AdminContext) -> Reply | StreamReply:
    """Put a record back that was set aside.

    Its owner reads it again, after all records that came since. If it still cannot be read, it is set aside again. The
    dead letter stays until its week is over; a record that was put back twice counts once.
    """
    return await context.nodes.dead_letter(call, call.path("reference"), put_back=True)
