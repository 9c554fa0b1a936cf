"""Tables of the control plane: accounts, keys, shared secrets, the usage ledger, speakers, sounds, rules of alarms."""

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
)
from sqlalchemy import UniqueConstraint as Unique

#: The revision that this code works with: the newest in `migrations/versions`.
REVISION: Final = "0015"

#: Bytes of a model's name that the ledger keeps; some databases count bytes as characters.
LONGEST_MODEL: Final = 200

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: All times are milliseconds since 1970 in UTC.
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
    #: Seconds of audio in a calendar month (UTC); NULL means unlimited.
    Column("free_seconds", BigInteger),
    #: JSON of `Choices`.
    Column("choices", Text, nullable=False, server_default="{}"),
    Unique("organization_id", "name"),
)

#: A key without a project is the organization's. Revoked keys stay, so that no key is issued twice.
keys: Final = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("organization_id", ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), index=True),
    Column("digest", LargeBinary(32), nullable=False, unique=True),
    Column("shown", String(16), nullable=False),
    #: An operator chose it.
    Column("chosen", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("revoked_at", BigInteger),
    #: To the minute.
    Column("last_used_at", BigInteger),
)

#: Tokens that open something for a limited time and end with their key (`infra.db.tokens`).
tokens: Final = Table(
    "tokens",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("purpose", String(8), nullable=False),
    Column("key_id", ForeignKey("keys.id", ondelete="CASCADE"), nullable=False),
    #: Only for a link to a recording.
    Column("job_id", String(24)),
    Column("ends_at", BigInteger, nullable=False, index=True),
    Index(None, "key_id", "purpose", "ends_at"),
)

#: Random bytes that all nodes share and that outlive them; for example the secret that signs page tokens.
secrets: Final = Table(
    "secrets",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

#: One row for each service of a job and each step of a session. There are no foreign keys, because a deleted project's
#: usage stays.
usage: Final = Table(
    "usage",
    metadata,
    #: A job or a session.
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
    # For a project's usage in a month, and for both orders in which lines are paged.
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
    #: What people call the speaker; NULL means the name.
    Column("display_name", String(100)),
    Unique("organization_id", "name"),
)

samples: Final = Table(
    "samples",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("speaker_id", ForeignKey("speakers.id", ondelete="CASCADE"), nullable=False, index=True),
    #: Unique within a speaker; samples are ordered by it.
    Column("created_at", BigInteger, nullable=False),
    Column("length_ms", BigInteger, nullable=False),
    #: float32, little-endian.
    Column("vector", LargeBinary, nullable=False),
    Column("model", String(LONGEST_MODEL), nullable=False),
    #: Hex.
    Column("model_sha256", String(64), nullable=False),
    #: Name of the recording in the voice store; NULL if it was not kept.
    Column("voice", String(200)),
)

#: Recordings to delete from the voice store, each not before its time. No foreign keys: rows outlive their speakers.
discards: Final = Table(
    "discards",
    metadata,
    Column("voice", String(200), primary_key=True),
    Column("due_at", BigInteger, nullable=False),
)

#: Sounds that a project teaches; columns for what was learnt are NULL until then.
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

#: Passages that a project marked.
own_marks: Final = Table(
    "own_marks",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("sound_id", ForeignKey("own_sounds.id", ondelete="CASCADE"), nullable=False),
    #: A job, otherwise a session; it may be gone.
    Column("job", Boolean, nullable=False),
    Column("source", String(24), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger, nullable=False),
    #: The sound is there.
    Column("correct", Boolean, nullable=False),
    Column("graph", String(64), nullable=False),
    #: int8, one row for each look.
    Column("embeddings", LargeBinary, nullable=False),
    Unique("sound_id", "source", "start_ms", "end_ms"),
)

alarm_rules: Final = Table(
    "alarm_rules",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(60), nullable=False),
    #: Grows with each change.
    Column("revision", Integer, nullable=False),
    #: JSON of `AlarmRule`.
    Column("rule", Text, nullable=False),
    Unique("project_id", "name"),
)

#: Where projects send alarms: the fields of `Destination`.
destinations: Final = Table(
    "destinations",
    metadata,
    Column("id", String(24), primary_key=True),
    Column("project_id", ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(60), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("url", Text, nullable=False),
    Column("enabled", Boolean, nullable=False),
    Column("fault", Text),
    #: JSON: [secret, when it was replaced or null], the newest first.
    Column("secrets", Text, nullable=False, server_default="[]"),
    Column("user", Text),
    Column("password", Text),
    #: JSON.
    Column("options", Text, nullable=False, server_default="{}"),
    Unique("project_id", "name"),
)

#: Partitions that stopped, because too many of their records cannot be read.
stopped_partitions: Final = Table(
    "stopped_partitions",
    metadata,
    Column("partition", Integer, primary_key=True, autoincrement=False),
    #: The first record that it did not pass.
    Column("topic", String(249), nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("cause", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    #: The operator's: "skip" or "resume".
    Column("decision", String(8)),
)

#: Projects that were deleted, so that their sessions and jobs are found and deleted, whatever is killed in between.
deleted_projects: Final = Table(
    "deleted_projects",
    metadata,
    Column("project_id", String(24), primary_key=True),
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
