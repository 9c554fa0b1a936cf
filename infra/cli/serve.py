"""`earshot serve`: run the service in this process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from infra.errors import variable
from topics.errors import ServiceError

if TYPE_CHECKING:
    from infra.db.bootstrap import Bootstrap, FirstKeys
    from infra.settings import Settings
    from streams.processes.zygote_process import Zygote

#: `export` and `echo` are shell built-ins, so these lines show no key in process lists.
WELCOME: Final = (
    "\nEarshot is listening on {url}\n{key_lines}{dashboard}\n"
    "To paste into a second terminal: create a session, send a recording, read what was heard.\n\n"
    "  export EARSHOT_URL={url} EARSHOT_PROJECT_KEY={key}\n"
    """  ID=$(echo "X-Api-Key: $EARSHOT_PROJECT_KEY" | curl -s -H @- $EARSHOT_URL/audio_sessions/ """
    """-d '{{"type":"stream","content_type":"audio/flac"}}' | cut -d'"' -f4)\n"""
    """  (printf '{{"data":"'; base64 {recording}; printf '"}}') | """
    "curl -s -X PUT $EARSHOT_URL/audio_sessions/$ID/chunks/0 -d @-\n"
    "  curl -s $EARSHOT_URL/audio_sessions/$ID/status\n\n"
    "A whole recording as a job, with speech, insights and a caption:\n\n"
    "  {earshot} analyze {recording} --insights\n"
)

DASHBOARD: Final = "\nOpen {link}\nin a browser: it signs you in, once, within ten minutes.\n"
#: Output that is not a terminal may end in a journal, which others read.
ELSEWHERE: Final = "\nFor the dashboard, `earshot link` prints a link that signs in a browser.\n"
#: Under a service manager the first start makes no keys.
KEYLESS: Final = "The demo {whose} has no key: a start shows new keys on a terminal only. `{command} demo` makes one.\n"
COMMANDS: Final = {"project": "earshot key rotate", "organization": "earshot org rotate-key"}
SHOWN: Final = "Keys were shown when they were made; `earshot key rotate PROJECT` makes a new one.\n"
UNUSED: Final = "{setting} is ignored: the demo {whose} already has another key, or this one was revoked.\n"


def serve() -> None:
    """Start the service; settings come from EARSHOT_... variables (see `earshot config`)."""
    from infra import settings

    # It has read the settings at once, so that a wrong one is reported before anything else is imported.
    if (loaded := settings.load()).lane_count > 1:
        _prepare()
        from infra.service import supervisor

        raise typer.Exit(supervisor.run(loaded, announce, sys.stdout.isatty()))
    with started() as zygote:
        from infra.service.service import run
    raise typer.Exit(run(loaded, announce, sys.stdout.isatty(), zygote))


def _prepare() -> None:
    from infra import scratch

    # With small matrices a second thread costs more than it gains, much more on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    scratch.prepare()


@contextmanager
def started() -> Iterator[Zygote]:
    """Yield the zygote of a process that serves, which starts while the body imports the service."""
    _prepare()
    with importing():
        from streams.processes.zygote_process import Zygote
        from streams.workers import COMMAND

        # The zygote imports as much, on another core.
        zygote = Zygote(COMMAND)
        zygote.start_beside()
        yield zygote


@contextmanager
def importing() -> Iterator[None]:
    """Import in the body without garbage collection, which would take a tenth of the second or two that it takes."""
    gc.disable()
    yield
    from infra.service.garbage import Freezer

    gc.enable()
    gc.callbacks.append(Freezer())


def announce(settings: Settings, url: str, demo: Bootstrap, keys: FirstKeys, link: str | None) -> None:
    """Print the service's address, new keys, the dashboard link, and lines to paste.

    Raises:
        ServiceError: the output fails, so nobody sees them.
    """
    from infra.examples import RECORDING
    from infra.service.links import dashboard_link

    recording = os.path.relpath(RECORDING)
    earshot = os.path.relpath(Path(sys.executable).with_name("earshot"))
    dashboard = ELSEWHERE if settings.edge.dashboard else ""
    if link is not None:
        dashboard = DASHBOARD.format(link=dashboard_link(url, link))
    key_lines, key = _keys(settings, demo, keys)
    welcome = WELCOME.format(
        url=url, key_lines=key_lines, dashboard=dashboard, key=key, recording=recording, earshot=earshot
    )
    try:
        print(welcome, flush=True)
    except OSError as error:
        raise ServiceError(f"the keys cannot be shown: stdout: {error.strerror}") from error


def _keys(settings: Settings, demo: Bootstrap, keys: FirstKeys) -> tuple[str, str]:
    """Return the lines about the keys, and the project key's text for lines to paste."""
    works = settings.bootstrap_project_key is not None and "bootstrap_project_key" not in demo.unused
    lines = [
        UNUSED.format(setting=variable(field), whose="project" if "project" in field else "organization")
        for field in demo.unused
    ]
    if works:
        lines.append("The demo project's key is EARSHOT_BOOTSTRAP_PROJECT_KEY.\n")
    elif keys.project is None and "project" not in demo.keyless:
        lines.append(SHOWN)
    lines += [
        f"Key of the demo {whose}, shown this once and stored hashed: {fresh}\n"
        for whose, fresh in (("project", keys.project), ("organization (for speakers)", keys.organization))
        if fresh is not None
    ]
    if not (keys.project or keys.organization):
        lines += [KEYLESS.format(whose=whose, command=COMMANDS[whose]) for whose in demo.keyless]
    here = works and "EARSHOT_BOOTSTRAP_PROJECT_KEY" in os.environ  # Not if the key came from a file.
    return "".join(lines), keys.project or ('"$EARSHOT_BOOTSTRAP_PROJECT_KEY"' if here else "YOUR_PROJECT_KEY")
