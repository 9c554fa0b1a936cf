"""Every path of the service, with the operation for each method."""

from typing import Final

from app import probes
from app.admin import operations as admin
from app.admin.admin_bodies import PREFIX as ADMIN_PREFIX
from app.admin.guard import AdminContext, admin_error
from app.dashboard import operations as dashboard
from app.dashboard.operations import DashboardContext
from app.http.descriptions import operations_of, table_of
from app.http.replies import ErrorRenderer, session_error
from app.http.resource import Table
from app.jobs import acceptance, audio, captions, custom_sounds, events, lists, pictures, reads, window_scores
from app.jobs.errors import job_error
from app.jobs.job_context import JobContext
from app.openai import operations as openai
from app.openai.errors import openai_error
from app.openai.operations import OpenAIContext
from app.own_sounds import operations as own_sounds
from app.own_sounds.kept_embeddings import OwnSoundContext
from app.probes import ProbeContext
from app.projects import operations as projects
from app.projects.operations import ProjectContext
from app.sessions import commands, public_clients
from app.sessions import lists as session_lists
from app.sessions import reads as session_reads
from app.sessions.activity import project_activity, session_activity
from app.sessions.live import follow_project, follow_session
from app.sessions.session_context import SessionContext
from app.sessions.socket_opening import SocketContext, join_session, open_session
from app.speakers import operations as speakers
from app.speakers.errors import speaker_error
from app.speakers.operations import SpeakerContext

SENSE_PREFIX: Final = "/sense/api/v1"
JOBS_PREFIX: Final = "/api/v1"
SPEAKERS_PREFIX: Final = "/api/v2"
OPENAI_PREFIX: Final = "/v1"

#: Served at the root and at SENSE_PREFIX.
SESSION_ROUTES: Final[Table[SessionContext]] = {
    **table_of(operations_of(commands, session_lists, session_reads)),
    "/audio_sessions/{session_id}/live": {"GET": follow_session},
    "/audio_sessions/{session_id}/activity": {"GET": session_activity},
    **table_of(operations_of(public_clients)),
}

JOB_ROUTES: Final[Table[JobContext]] = table_of(
    operations_of(acceptance, lists, reads, events, window_scores, audio, pictures, captions, custom_sounds)
)

#: Sockets, at the root: one for a session, and one that creates its session.
SOCKET_ROUTES: Final[Table[SocketContext]] = {
    "/audio_sessions/{session_id}/socket": {"GET": join_session},
    f"{JOBS_PREFIX}/socket": {"GET": open_session},
}

#: Under JOBS_PREFIX, for all sessions of a project.
LIVE_ROUTES: Final[Table[SessionContext]] = {
    "/live": {"GET": follow_project},
    "/activity": {"GET": project_activity},
}

#: Under JOBS_PREFIX.
OWN_SOUND_ROUTES: Final[Table[OwnSoundContext]] = table_of(operations_of(own_sounds))

PROJECT_ROUTES: Final[Table[ProjectContext]] = table_of(operations_of(projects))

DASHBOARD_ROUTES: Final[Table[DashboardContext]] = table_of(operations_of(dashboard))

SPEAKER_ROUTES: Final[Table[SpeakerContext]] = table_of(operations_of(speakers))

OPENAI_ROUTES: Final[Table[OpenAIContext]] = table_of(operations_of(openai))

#: Under `app.admin.admin_bodies.PREFIX`. References are ids or names. A name may contain slashes and end like a path,
#: so the method decides: POST and PUT name a reference's key or plan, DELETE the reference itself.
ADMIN_ROUTES: Final[Table[AdminContext]] = table_of(operations_of(admin))

SERVICE_ROUTES: Final[Table[ProbeContext]] = table_of(operations_of(probes))
#: The operator's routes if that interface has its own address.
OPERATOR_PROBES: Final = ("/readyz", "/metrics")


def error_shape(path: str, with_operator: bool) -> ErrorRenderer:
    """Return the error shape for a path without a route, by its part of the interface."""
    if with_operator and f"{path}/".startswith(f"{ADMIN_PREFIX}/"):
        return admin_error
    if f"{path}/".startswith(f"{SPEAKERS_PREFIX}/"):
        return speaker_error
    if path.startswith(f"{OPENAI_PREFIX}/"):
        return openai_error
    return job_error if path.startswith("/api/") else session_error
