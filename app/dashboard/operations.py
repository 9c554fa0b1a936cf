"""Operations of the dashboard: its files, sign-in by a link, and sign-out."""

from typing import Annotated, Final

import msgspec
import structlog

from app.dashboard import files
from app.http.bodies import SMALL_BODY, decode
from app.http.call import Call
from app.http.descriptions import Answer, Fault, Parameter, fault_of, json_answer, json_body, operation
from app.http.replies import NO_CONTENT, Reply, once_reply, reply_unless_known
from app.identity.authentication import Authenticator
from app.identity.keys import CROWDED, KeyRateLimiter
from topics.errors import DirectoryDown, NotFound, Unavailable
from topics.ports.directory import Principal
from topics.ports.sign_ins import SignIn, SignIns

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

INDEX: Final = "index.html"
HEADERS: Final = {
    "ETag": "In `If-None-Match` it makes the answer 304 while nothing has changed.",
    "Content-Security-Policy": "Nothing is loaded, run or called from elsewhere.",
}
FAULTS: Final[tuple[Fault, ...]] = (Unavailable(CROWDED), DirectoryDown("the database does not answer"), 500)
PASSES: Final = SignIn("pass_0123456789", "pass_abcdefghij")


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a sign-in: the token of a link."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=200, description="The link's; works once.")]


class Passes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a sign-out: the session tokens to end."""

    project: Annotated[str | None, msgspec.Meta(description="The project's token, or null.")]
    organization: Annotated[str | None, msgspec.Meta(description="The organization's token, or null.")]


_LINK: Final = msgspec.json.Decoder(Link)
_PASSES: Final = msgspec.json.Decoder(Passes)


class DashboardContext(msgspec.Struct, frozen=True):
    """Sign-in by links, and sign-out. The pages get their contents from the other parts of the interface."""

    sign_ins: SignIns
    tries: KeyRateLimiter
    project_keys: Authenticator[Principal]
    organization_keys: Authenticator[str]


@operation(
    "GET /dashboard", answers={308: Answer("The address needs a slash.", headers={"Location": "With the slash."})}
)
async def to_dashboard(call: Call, context: DashboardContext) -> Reply:
    """Go to the dashboard."""
    root = str(call.scope.get("root_path", ""))
    return Reply(308, [(b"location", f"{root}/dashboard/".encode("latin-1")), (b"content-length", b"0")])


@operation(
    "POST /dashboard/sign-in",
    bodies=json_body(link=Link("0123456789abcdefghijABCD")),
    answers=json_answer(
        "Session tokens; null if the owner has no key.",
        both=PASSES,
        headers={"Cache-Control": "Do not cache: shown once."},
    ),
    faults=lambda: (
        fault_of(decode, _LINK, b"{}"),
        NotFound("this link was used already, or is older than ten minutes"),
        *FAULTS,
    ),
)
async def sign_in(call: Call, context: DashboardContext) -> Reply:
    """Sign in by a link.

    Exchanges a printed link for session tokens, once. Send a token like a key, until it ends.
    """
    link = decode(_LINK, await call.body(SMALL_BODY))
    context.tries.check(call.address)
    try:
        passes = await context.sign_ins.redeem(link.token)
    except NotFound:
        context.tries.count(call.address)
        raise
    log.info("signed in by a link")
    return once_reply(passes)


@operation(
    "POST /dashboard/sign-out",
    bodies=json_body(both=Passes(PASSES.project, PASSES.organization)),
    answers={204: Answer("The tokens are no longer valid.")},
    faults=lambda: (fault_of(decode, _PASSES, b"{}"), *FAULTS),
)
async def sign_out(call: Call, context: DashboardContext) -> Reply:
    """Sign out.

    Ends tokens: here at once, on other nodes within {key_cache_seconds} s. Keys stay.
    """
    passes = decode(_PASSES, await call.body(SMALL_BODY))
    context.tries.check(call.address)
    for keys, passed in ((context.project_keys, passes.project), (context.organization_keys, passes.organization)):
        if passed is None:
            continue
        ended = await context.sign_ins.end(passed)
        if not ended:
            context.tries.count(call.address)
        keys.forget(passed, ended)
    return NO_CONTENT


@operation(
    "GET /dashboard/{file:path}",
    parameters=(
        Parameter("file", "path", str, "The file.", required=True, example=INDEX),
        Parameter("If-None-Match", "header", str, "The `ETag` of an earlier answer.", example='"0123456789abcdef"'),
    ),
    answers=lambda: {
        200: tuple(Answer("The file.", (str,), {}, media=media, headers=HEADERS) for media in files.media_types()),
        304: Answer("Not modified.", headers=HEADERS),
    },
    faults=(NotFound("Not Found"),),
)
async def read_file(call: Call, context: DashboardContext) -> Reply:
    """Open the dashboard in a browser.

    Its pages, and the scripts and styles they load. The name may have slashes; by default it is `{INDEX}`. The pages
    get their data from the other operations, with the visitor's keys.
    """
    name = call.path("file") or INDEX
    if name not in files.names():
        raise NotFound("Not Found")
    file = files.read(name)
    packed = b"gzip" in call.header(b"accept-encoding")
    body, etag = (file.packed, file.packed_etag) if packed else (file.content, file.etag)
    kind = b"content-type", file.kind.encode("ascii")
    reply = reply_unless_known(call.header(b"if-none-match"), etag, kind, body, file.headers)
    if packed and reply.body:
        reply.headers.append((b"content-encoding", b"gzip"))
    return reply
