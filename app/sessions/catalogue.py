"""Operations that need no session: the tags, and the supported client libraries."""

from typing import Final

from app.http.call import Call
from app.http.replies import Reply, json_reply
from app.sessions.answers import ClientVersions, LatestClient, OfficialTag
from app.sessions.session_context import SessionContext

#: Supported versions of the public Python client library, newest last.
CLIENT_LIBRARIES: Final = ["1.0.9", "1.0.10", "1.0.11", "1.0.12", "1.0.13", "2.0.0", "2.0.1"]


async def official_tags(call: Call, context: SessionContext) -> Reply:
    """GET /tags/official: the tags of the model in use; a tag's id is its name in lower case."""
    return json_reply([OfficialTag(tag.lower(), tag) for tag in context.sessions.official_tags()])


async def client_versions(call: Call, context: SessionContext) -> Reply:
    return json_reply(ClientVersions(CLIENT_LIBRARIES))


async def latest_client(call: Call, context: SessionContext) -> Reply:
    return json_reply(LatestClient(CLIENT_LIBRARIES[-1]))
