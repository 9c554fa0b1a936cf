"""`earshot serve`: start the service in this process."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from topics.errors import ServiceError

if TYPE_CHECKING:
    from infra.db.bootstrap import FirstKeys
    from infra.service.service import EarshotService

#: No line shows a key to those who list processes: `export` and `echo` are the shell's own.
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

#: What is behind the # is not sent to any server, and in no log of one.
DASHBOARD: Final = "\nOpen {url}/dashboard/#/welcome/{link}\nin a browser: it signs you in, once, within ten minutes.\n"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve() -> None:
    """Start the service; settings come from EARSHOT_... variables (see `earshot config`)."""
    from infra import settings

    loaded = settings.load()
    # Imported after the settings: a wrong one should be told at once, and these take a second or two, a tenth of
    # which would go into looking for garbage among what they make.
    gc.disable()
    from infra.service.service import run

    gc.enable()
    gc.freeze()
    raise typer.Exit(run(loaded, announce))


def announce(service: EarshotService, keys: FirstKeys, link: str | None) -> None:
    """Print where the service is, the keys that were made, the token of a link to the dashboard, and lines to paste.

    Raises:
        ServiceError: nobody can see it.
    """
    from infra.examples import RECORDING

    chosen = service.settings.bootstrap_project_key
    lines = [
        f"Key of the demo {whose}, shown this once and stored hashed: {fresh}\n"
        for whose, fresh in (("project", keys.project), ("organization (for speakers)", keys.organization))
        if fresh is not None
    ]
    if keys.project is None:
        lines[:0] = [
            "Keys were shown when they were made; `earshot key rotate PROJECT` makes a new one.\n"
            if chosen is None
            else "The demo project's key is EARSHOT_BOOTSTRAP_PROJECT_KEY.\n"
        ]
    here = os.environ.get("EARSHOT_BOOTSTRAP_PROJECT_KEY")  # not where it came by file
    key = keys.project or ('"$EARSHOT_BOOTSTRAP_PROJECT_KEY"' if chosen is not None and here else "YOUR_PROJECT_KEY")
    recording = os.path.relpath(RECORDING)
    earshot = os.path.relpath(Path(sys.executable).with_name("earshot"))
    dashboard = "" if link is None else DASHBOARD.format(url=service.url, link=link)
    welcome = WELCOME.format(
        url=service.url, key_lines="".join(lines), dashboard=dashboard, key=key, recording=recording, earshot=earshot
    )
    try:
        print(welcome, flush=True)
    except OSError as error:
        raise ServiceError(f"the keys cannot be shown: stdout: {error.strerror}") from error
