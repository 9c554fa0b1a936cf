"""The dashboard's own operations, as the documents describe them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.dashboard import files, operations
from app.dashboard.operations import INDEX, Link, Passes
from app.http.bodies import decode
from app.http.descriptions import Answer, Description, Parameter, fault_of, json_answer, json_body
from app.http.operation import Handler
from app.identity.keys import CROWDED
from topics.errors import DirectoryDown, NotFound, Unavailable
from topics.ports.sign_ins import SignIn

MEDIA: Final = sorted({files.read(name).kind.partition(";")[0] for name in files.names()})
HEADERS: Final = {
    "ETag": "In `If-None-Match` it makes the answer 304 while nothing has changed.",
    "Content-Security-Policy": "Nothing is loaded, run or called from elsewhere.",
}
PASSES: Final = SignIn("pass_0123456789", "pass_abcdefghij")

OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.to_dashboard: Description(
        summary="Go to the dashboard",
        answers={308: Answer("The address needs a slash.", headers={"Location": "With the slash."})},
    ),
    operations.read_file: Description(
        summary="Open the dashboard in a browser",
        text="Its pages, and the scripts and styles they load. The name may have slashes; by default it is "
        f"`{INDEX}`. The pages get their data from the other operations, with the visitor's keys.",
        parameters=(
            Parameter("file", "path", str, "The file.", required=True, example=INDEX),
            Parameter("If-None-Match", "header", str, "The `ETag` of an earlier answer.", example='"0123456789abcdef"'),
        ),
        answers={
            200: tuple(Answer("The file.", (str,), {}, media=media, headers=HEADERS) for media in MEDIA),
            304: Answer("Not modified.", headers=HEADERS),
        },
        faults=(NotFound("Not Found"),),
    ),
    operations.sign_in: Description(
        summary="Sign in by a link",
        text="Exchanges a printed link for session tokens, once. Send a token like a key, until it ends.",
        bodies=json_body(link=Link("0123456789abcdefghijABCD")),
        answers=json_answer(
            "Session tokens; null if the owner has no key.",
            both=PASSES,
            headers={"Cache-Control": "Do not cache: shown once."},
        ),
        faults=(
            fault_of(decode, msgspec.json.Decoder(Link), b"{}"),
            NotFound("this link was used already, or is older than ten minutes"),
            Unavailable(CROWDED),
            DirectoryDown("the database does not answer"),
            500,
        ),
    ),
    operations.sign_out: Description(
        summary="Sign out",
        text="Ends tokens: here at once, on other nodes within {key_cache_seconds} s. Keys stay.",
        bodies=json_body(both=Passes(PASSES.project, PASSES.organization)),
        answers={204: Answer("The tokens are no longer valid.")},
        faults=(
            fault_of(decode, msgspec.json.Decoder(Passes), b"{}"),
            Unavailable(CROWDED),
            DirectoryDown("the database does not answer"),
            500,
        ),
    ),
}
