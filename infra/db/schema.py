"""Tables of the control plane: organizations, projects, keys, secrets of all nodes, the usage ledger, speakers."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    true,
)
from sqlalchemy import UniqueConstraint as Unique

#: Revision that this code works with: the newest in `migrations/versions`.
REVISION: Final = "0010"

#: Bytes of a model's name that the ledger keeps: some databases count them for characters.
LONGEST_MODEL: Final = 200

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: Times are milliseconds since 1970 in UTC, the same number in every database.
organizations: Final = Table(
    "organizations",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("name", String(40), nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
)

projects: Final = Table(
    "projects",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    #: Seconds of audio in a calendar month (UTC); NULL is any amount.
    Column("free_seconds", BigInteger),
    #: Seconds that the audio of its jobs is kept after they were accepted; NULL means the operator's default.
    Column("keep_audio_seconds", BigInteger),
    #: JSON of `ChosenRules`: when a sound is on in its sessions; NULL is the service's rule.
    Column("sound_rules", Text),
    #: What sounds are learnt from is kept with the windows of its sessions and jobs.
    Column("keep_looks", Boolean, nullable=False, server_default=false()),
    Unique("organization_id", "name"),
)

#: A key without a project is the organization's. A revoked key stays: nobody can be given it again.
keys: Final = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("shown", String(16), nullable=False),
    #: An operator chose it, or may have: revisions before 0008 did not say.
    Column("chosen", Boolean, nullable=False, server_default=true()),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    #: To the minute.
    Column("last_used_at", BigInteger),
)

#: Tokens that open something for a while and end with their key (`infra.db.tokens`).
tokens: Final = Table(
    "tokens",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("purpose", String(8), nullable=False),
    Column("key_id", ForeignKey("keys.id", ondelete="CASCADE"), nullable=False),
    #: For a link to a recording.
    Column("job_id", String(24)),
    Column("ends_at", BigInteger, nullable=False, index=True),
    Index(None, "key_id", "purpose", "ends_at"),
)

#: Random bytes that all nodes share and that outlive them, such as the secret that signs page tokens.
secrets: Final = Table(
    "secrets",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

#: One row for each service of a job and each step of a session. There are no foreign keys: the usage of a project stays
#: when the project is deleted.
usage: Final = Table(
    "usage",
    metadata,
    #: Or the id of a session.
    Column("job_id", String(24), primary_key=True),
    Column("service", String(40), primary_key=True),
    Column("step", BigInteger, primary_key=True, server_default="0"),
    Column("project_id", String(24), nullable=False),
    Column("organization_id", String(24), nullable=False),
    Column("audio_ms", BigInteger, nullable=False),
    Column("model", String(LONGEST_MODEL), nullable=False),
    Column("at", BigInteger, nullable=False),
    #: "YYYY-MM" of `at`, UTC.
    Column("month", String(7), nullable=False),
    # A project's usage in a month, and both orders in which lines are read a page at a time.
    Index(None, "project_id", "month", "at", "job_id", "service"),
    Index(None, "month", "at", "job_id", "service"),
)

speakers: Final = Table(
    "speakers",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(100), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Unique("organization_id", "name"),
)

samples: Final = Table(
    "samples",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("speaker_id", ForeignKey("speakers.id", ondelete="CASCADE"), nullable=False, index=True),
    #: No two of a speaker are equal, so that this is their order.
    Column("created_at", BigInteger, nullable=False),
    Column("length_ms", BigInteger, nullable=False),
    #: float32, little-endian.
    Column("vector", LargeBinary, nullable=False),
    Column("model", String(LONGEST_MODEL), nullable=False),
    #: Hex.
    Column("model_sha256", String(64), nullable=False),
    #: Name of the recording in the voice store; NULL when it was not kept.
    Column("voice", String(200)),
)

#: Recordings to delete from the voice store, each not before its time. No foreign keys: they outlive their speakers.
discards: Final = Table(
    "discards",
    metadata,
    Column("voice", String(200), primary_key=True),
    Column("due_at", BigInteger, nullable=False),
)

#: Sounds that a project teaches; what was learnt is NULL before.
own_sounds: Final = Table(
    "own_sounds",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(40), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    #: New sessions and jobs report it.
    Column("reported", Boolean, nullable=False, server_default=false()),
    Column("learnt_at", BigInteger),
    #: SHA-256 of the graph whose embeddings it was learnt from; hex.
    Column("graph", String(64)),
    #: float32, little-endian: the heads for streams and for recordings.
    Column("stream", LargeBinary),
    Column("recording", LargeBinary),
    #: JSON.
    Column("figures", Text),
    Unique("project_id", "name"),
)

#: Passages that a project has marked.
own_marks: Final = Table(
    "own_marks",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("sound_id", ForeignKey("own_sounds.id", ondelete="CASCADE"), nullable=False),
    #: A job or a session, which may be gone.
    Column("job", Boolean, nullable=False),
    Column("source", String(24), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger, nullable=False),
    #: The sound is there.
    Column("correct", Boolean, nullable=False),
    Column("graph", String(64), nullable=False),
    #: int8, one row a look.
    Column("looks", LargeBinary, nullable=False),
    Unique("sound_id", "source", "start_ms", "end_ms"),
)

_live = keys.c.revoked_at.is_(None)
_of_project = _live & keys.c.project_id.is_not(None)
_of_organization = _live & keys.c.project_id.is_(None)

Index("one_live_project_key", keys.c.project_id, unique=True, sqlite_where=_of_project, postgresql_where=_of_project)
Index(
    "one_live_organization_key",
    keys.c.organization_id,
    unique=True,
    sqlite_where=_of_organization,
    postgresql_where=_of_organization,
)
