"""The parts of the interface as the documents show them: routes, descriptions and errors."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

import msgspec

from app import probes
from app.admin import operations as admin
from app.admin.admin_bodies import PREFIX as ADMIN_PREFIX
from app.admin.admin_bodies import AdminError
from app.admin.guard import admin_error
from app.dashboard import operations as dashboard
from app.documents import operations as documents
from app.http.descriptions import Description, operations_of, table_of
from app.http.operation import Handler
from app.http.replies import ErrorRenderer, GenericError, session_error
from app.http.resource import Table
from app.jobs import acceptance, audio, captions, custom_sounds, events, lists, pictures, reads, window_scores
from app.jobs.answers import JobFault, ValidationFault
from app.jobs.errors import job_error
from app.openai import operations as openai
from app.openai.errors import OpenAIError, openai_error
from app.own_sounds import operations as own_sounds
from app.projects import operations as projects
from app.routes import (
    ADMIN_ROUTES,
    DASHBOARD_ROUTES,
    JOB_ROUTES,
    JOBS_PREFIX,
    LIVE_ROUTES,
    OPENAI_PREFIX,
    OPENAI_ROUTES,
    OWN_SOUND_ROUTES,
    PROJECT_ROUTES,
    SENSE_PREFIX,
    SERVICE_ROUTES,
    SESSION_ROUTES,
    SOCKET_ROUTES,
    SPEAKER_ROUTES,
    SPEAKERS_PREFIX,
)
from app.sessions import commands, public_clients
from app.sessions import lists as session_lists
from app.sessions import reads as session_reads
from app.sessions.live_descriptions import PROJECT_OPERATIONS as LIVE_PROJECT_OPERATIONS
from app.sessions.live_descriptions import SESSION_OPERATIONS as LIVE_SESSION_OPERATIONS
from app.sessions.socket_descriptions import SOCKET_OPERATIONS
from app.speakers import operations as speakers
from app.speakers.answers import SpeakerFault
from app.speakers.errors import speaker_error


def described(*modules: ModuleType) -> dict[Handler[Any], Description]:
    return {one.handler: one.description for one in operations_of(*modules)}


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the interface: a table of routes, and what its operations share."""

    #: Tag.
    name: str
    text: str
    prefix: str = ""
    #: Another prefix with the same paths.
    alias: str = ""
    table: Table[Any]
    operations: Mapping[Handler[Any], Description]
    error: ErrorRenderer
    #: Types of JSON errors by status; 0 stands for all others.
    faults: Mapping[int, Any]


SESSIONS: Final = Part(
    name="Audio sessions",
    text="Send audio in numbered chunks, live or from a file; read sound events as it comes.",
    alias=SENSE_PREFIX,
    table=SESSION_ROUTES,
    operations={**described(commands, session_lists, session_reads, public_clients), **LIVE_SESSION_OPERATIONS},
    error=session_error,
    faults={0: GenericError},
)
JOBS: Final = Part(
    name="Jobs",
    text="Send whole recordings; get an entry per service.",
    prefix=JOBS_PREFIX,
    table=JOB_ROUTES,
    operations=described(acceptance, lists, reads, events, window_scores, audio, pictures, captions, custom_sounds),
    error=job_error,
    faults={0: JobFault, 422: ValidationFault},
)
SPEAKERS: Final = Part(
    name="Speakers",
    text="Register the voices of an organization, and recognise them.",
    prefix=SPEAKERS_PREFIX,
    table=SPEAKER_ROUTES,
    operations=described(speakers),
    error=speaker_error,
    faults={0: SpeakerFault},
)
OPENAI: Final = Part(
    name="OpenAI",
    text="Speech to text for OpenAI's clients.",
    prefix=OPENAI_PREFIX,
    table=OPENAI_ROUTES,
    operations=described(openai),
    error=openai_error,
    faults={0: OpenAIError},
)
LIVE: Final = Part(
    name="Live",
    text="What a project's sessions hear now, and what they heard on a day.",
    prefix=JOBS_PREFIX,
    table=LIVE_ROUTES,
    operations=LIVE_PROJECT_OPERATIONS,
    error=job_error,
    faults={0: JobFault},
)
SOCKETS: Final = Part(
    name="Sockets",
    text="Send a session's audio and get its events over one WebSocket. The AsyncAPI document has the messages.",
    table=SOCKET_ROUTES,
    operations=SOCKET_OPERATIONS,
    error=session_error,
    faults={0: GenericError},
)
PROJECTS: Final = Part(
    name="Projects",
    text="Read and change a project, and list the models in use.",
    prefix=JOBS_PREFIX,
    table=PROJECT_ROUTES,
    operations=described(projects),
    error=job_error,
    faults={0: JobFault},
)
OWN_SOUNDS: Final = Part(
    name="Own sounds",
    text="Sounds that a project teaches by marking passages.",
    prefix=JOBS_PREFIX,
    table=OWN_SOUND_ROUTES,
    operations=described(own_sounds),
    error=job_error,
    faults={0: JobFault},
)
DASHBOARD: Final = Part(
    name="Dashboard",
    text="Pages for a browser, and sign-in by link.",
    table=DASHBOARD_ROUTES,
    operations=described(dashboard),
    error=session_error,
    faults={0: GenericError},
)
SERVICE: Final = Part(
    name="Service",
    text="Service info, health probes, and these documents.",
    table={**SERVICE_ROUTES, **table_of(operations_of(documents))},
    operations=described(probes, documents),
    error=session_error,
    faults={0: GenericError},
)
OPERATOR: Final = Part(
    name="Operator",
    text="Organizations, projects, keys, plans, usage and the health of nodes: for the operator.",
    prefix=ADMIN_PREFIX,
    table=ADMIN_ROUTES,
    operations=described(admin),
    error=admin_error,
    faults={0: AdminError},
)
EVERYTHING: Final = (SESSIONS, SOCKETS, LIVE, JOBS, SPEAKERS, OPENAI, PROJECTS, OWN_SOUNDS, DASHBOARD, SERVICE)
