"""The parts of the interface: the operations of each, their prefix, and their shape of errors."""

from typing import Final

from app import probes
from app.admin import node_operations
from app.admin import operations as admin
from app.admin.admin_bodies import PREFIX as ADMIN_PREFIX
from app.admin.admin_bodies import AdminError
from app.admin.guard import AdminContext, admin_error, guarded
from app.alarms import destinations, rule_trials
from app.alarms import operations as alarms
from app.alarms import rules as alarm_rules
from app.alarms.alarm_context import AlarmContext
from app.dashboard import operations as dashboard
from app.dashboard.operations import DashboardContext
from app.http.descriptions import operations_of
from app.http.replies import ErrorRenderer, session_error
from app.http.resource import Part
from app.jobs import acceptance, audio, captions, custom_sounds, events, lists, pictures, reads, window_scores
from app.jobs.answers import JobFault, ValidationFault
from app.jobs.errors import job_error
from app.jobs.job_context import JobContext
from app.openai import operations as openai
from app.openai.errors import OpenAIError, openai_error
from app.openai.operations import OpenAIContext
from app.own_sounds import operations as own_sounds
from app.own_sounds.kept_embeddings import OwnSoundContext
from app.probes import ProbeContext
from app.projects import operations as projects
from app.projects.operations import ProjectContext
from app.sessions import activity, commands, live, project_activity, project_live, public_clients, socket_opening
from app.sessions import lists as session_lists
from app.sessions import reads as session_reads
from app.sessions.session_context import SessionContext
from app.sessions.socket_opening import SocketContext
from app.speakers import operations as speakers
from app.speakers.answers import SpeakerFault
from app.speakers.errors import speaker_error
from app.speakers.operations import SpeakerContext

JOBS_PREFIX: Final = "/api/v1"

SESSIONS: Final = Part[SessionContext](
    name="Audio sessions",
    text="Send audio in numbered chunks, live or from a file; read sound events as it comes.",
    alias="/sense/api/v1",
    operations=operations_of(commands, session_lists, session_reads, live, activity, public_clients),
)
JOBS: Final = Part[JobContext](
    name="Jobs",
    text="Send whole recordings; get an entry per service.",
    prefix=JOBS_PREFIX,
    operations=operations_of(acceptance, lists, reads, events, window_scores, audio, pictures, captions, custom_sounds),
    error=job_error,
    faults={0: JobFault, 422: ValidationFault},
)
SPEAKERS: Final = Part[SpeakerContext](
    name="Speakers",
    text="Register the voices of an organization, and recognise them.",
    prefix="/api/v2",
    operations=operations_of(speakers),
    error=speaker_error,
    faults={0: SpeakerFault},
)
OPENAI: Final = Part[OpenAIContext](
    name="OpenAI",
    text="Speech to text for OpenAI's clients.",
    prefix="/v1",
    operations=operations_of(openai),
    error=openai_error,
    faults={0: OpenAIError},
)
LIVE: Final = Part[SessionContext](
    name="Live",
    text="What a project's sessions hear now, and what they heard on a day.",
    prefix=JOBS_PREFIX,
    operations=operations_of(project_live, project_activity),
    error=job_error,
    faults={0: JobFault},
)
SOCKETS: Final = Part[SocketContext](
    name="Sockets",
    text="Send a session's audio and get its events over one WebSocket. The AsyncAPI document has the messages.",
    operations=operations_of(socket_opening),
)
PROJECTS: Final = Part[ProjectContext](
    name="Projects",
    text="Read and change a project, and list the models in use.",
    prefix=JOBS_PREFIX,
    operations=operations_of(projects),
    error=job_error,
    faults={0: JobFault},
)
OWN_SOUNDS: Final = Part[OwnSoundContext](
    name="Own sounds",
    text="Sounds that a project teaches by marking passages.",
    prefix=JOBS_PREFIX,
    operations=operations_of(own_sounds),
    error=job_error,
    faults={0: JobFault},
)
ALARMS: Final = Part[AlarmContext](
    name="Alarms",
    text="What makes an alarm, where alarms are sent, and the alarms.",
    prefix=JOBS_PREFIX,
    operations=operations_of(alarms, rule_trials, alarm_rules, destinations),
    error=job_error,
    faults={0: JobFault},
)
DASHBOARD: Final = Part[DashboardContext](
    name="Dashboard",
    text="Pages for a browser, and sign-in by link.",
    operations=operations_of(dashboard),
)
SERVICE: Final = Part[ProbeContext](
    name="Service",
    text="Service info, health probes, and these documents.",
    operations=operations_of(probes),
)
#: The probes if the operator's interface has its own address: here, and there.
SERVICE_APART: Final = SERVICE.without(probes.metrics)
OPERATOR_PROBES: Final = SERVICE.without(probes.about, probes.healthz)
OPERATOR: Final = Part[AdminContext](
    name="Operator",
    text="Organizations, projects, keys, plans, usage and the health of nodes: for the operator.",
    prefix=ADMIN_PREFIX,
    operations=guarded(operations_of(admin, node_operations)),
    error=admin_error,
    faults={0: AdminError},
)


def error_shape(path: str, with_operator: bool) -> ErrorRenderer:
    """Return the error shape for a path without a route, by its part of the interface."""
    for part in (OPERATOR, SPEAKERS) if with_operator else (SPEAKERS,):
        if f"{path}/".startswith(f"{part.prefix}/"):
            return part.error
    if path.startswith(f"{OPENAI.prefix}/"):
        return openai_error
    return job_error if path.startswith("/api/") else session_error
