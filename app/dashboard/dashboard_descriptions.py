"""The dashboard's own operations, as the documents describe them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.dashboard import files, operations
from app.dashboard.operations import INDEX, Link, Passes
from app.http.bodies import SMALL_BODY, decode, too_long
from app.http.descriptions import Answer, Body, Description, Parameter, fault_of
from app.http.operation import Handler
from topics.errors import DirectoryDown, NotFound, Unavailable
from topics.ports.sign_ins import SignIn

MEDIA: Final = sorted({files.read(name).kind.partition(";")[0] for name in files.names()})
HEADERS: Final = {
    "ETag": "The file's; with it in `If-None-Match` the answer is 304 while nothing has changed.",
    "Content-Security-Policy": "Nothing from elsewhere is loaded, run or called.",
}
PASSES: Final = SignIn("pass_0123456789", "pass_abcdefghij")

OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.to_dashboard: Description(
        summary="Go to the dashboard",
        origin="earshot",
        answers={308: (Answer("Its pages are below the slash.", headers={"Location": "The same with a slash."}),)},
    ),
    operations.read_file: Description(
        summary="Open the dashboard in a browser",
        text="Its pages, and the scripts and styles they load. The name may have slashes; without one it is that of "
        f"`{INDEX}`. What the pages show comes from the other operations, with the keys of whoever looks.",
        origin="earshot",
        parameters=(
            Parameter("file", "path", str, "The file.", required=True, example=INDEX),
            Parameter("If-None-Match", "header", str, "The `ETag` of an earlier answer.", example='"0123456789abcdef"'),
        ),
        answers={
            200: tuple(Answer("The file.", (str,), {}, media=media, headers=HEADERS) for media in MEDIA),
            304: (Answer("Not modified.", headers=HEADERS),),
        },
        faults=(NotFound("Not Found"),),
    ),
    operations.sign_in: Description(
        summary="Sign in by a link",
        text="A link that the service has printed gives passes, once. Send a pass like a key, until it ends.",
        origin="earshot",
        bodies=(Body(Link, {"link": Link("0123456789abcdefghijABCD")}),),
        answers={
            200: (
                Answer(
                    "Session tokens; null if the owner has no key.",
                    (SignIn,),
                    {"both": PASSES},
                    headers={"Cache-Control": "Not to be kept: they are shown once."},
                ),
            )
        },
        faults=(
            fault_of(decode, msgspec.json.Decoder(Link), b"{}"),
            NotFound("this link was used already, or is older than ten minutes"),
            too_long(SMALL_BODY),
            Unavailable("too many unknown keys were tried"),
            DirectoryDown("the database does not answer"),
            500,
        ),
    ),
    operations.sign_out: Description(
        summary="Sign out",
        text="The passes end: here at once, on other nodes within {key_cache_seconds} s. Keys do not.",
        origin="earshot",
        bodies=(Body(Passes, {"both": Passes(PASSES.project, PASSES.organization)}),),
        answers={204: (Answer("They have ended, or were not valid."),)},
        faults=(
            fault_of(decode, msgspec.json.Decoder(Passes), b"{}"),
            too_long(SMALL_BODY),
            Unavailable("too many unknown keys were tried"),
            DirectoryDown("the database does not answer"),
            500,
        ),
    ),
}
