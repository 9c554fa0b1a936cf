"""The route shortcut finds the same routes as Starlette."""

from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from app.routes import (
    ADMIN_ROUTES,
    DASHBOARD_ROUTES,
    JOB_ROUTES,
    JOBS_PREFIX,
    SENSE_PREFIX,
    SERVICE_ROUTES,
    SESSION_ROUTES,
)
from app.shortcut import ShortCut

TABLES = {
    "": [*SERVICE_ROUTES, *SESSION_ROUTES, *DASHBOARD_ROUTES],
    SENSE_PREFIX: SESSION_ROUTES,
    JOBS_PREFIX: JOB_ROUTES,
    "/admin/v1": ADMIN_ROUTES,
}


class Endpoint:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


#: The last one matches other routes' paths, and comes too late.
PATHS = [prefix + path for prefix, table in TABLES.items() for path in table] + ["/audio_sessions/{other}"]
ROUTES = [Route(path, Endpoint()) for path in PATHS]
APP = ShortCut(ROUTES)
PARTS = sorted(
    {part for path in PATHS for part in path.split("/") if "{" not in part} | {"AbC-1", "a b", "{file}", "."}
)


@given(st.lists(st.sampled_from(PARTS), max_size=8).map(lambda parts: "/" + "/".join(parts)))
def test_shortcut_finds_same_route_as_starlette(path: str) -> None:
    scope = {"type": "http", "path": path, "method": "GET"}
    matches = ((route, *route.matches(scope)) for route in ROUTES)
    expected = next(((route, child["path_params"]) for route, match, child in matches if match is Match.FULL), None)
    found = APP._find(path)
    assert found == expected or (found is None and expected is not None and ":" in expected[0].path)


def test_shortcut_finds_every_route_without_path_converter() -> None:
    for route in ROUTES[:-1]:
        filled = route.path.replace("{", "").replace("}", "")
        assert (APP._find(filled) is None) is (":" in route.path)
