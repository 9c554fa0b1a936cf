"""Settings of the service: read once from the environment, validated, and passed on as arguments."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from msgspec.structs import FieldInfo
from pydantic import Field, PrivateAttr, SecretStr, ValidationError, create_model, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.http.bodies import chunk_body
from app.options import EdgeSettings
from infra import secret_files, urls
from infra.engine_settings import EngineSettings
from infra.errors import PREFIX, WrongSetting, variable
from infra.kafka_settings import KafkaSettings
from infra.service_settings import (
    CORES_OF_A_LANE,
    EMBEDDED_PARTITIONS,
    KAFKA_PARTITIONS,
    LANES_PARTITIONS,
    ROOMY_CHUNK_LIMIT,
    ServiceSettings,
)
from infra.urls import Broker
from streams import cores
from topics import catalog

#: Variables of commands and tests: neither settings nor typing errors.
_COMMANDS: Final = frozenset({"EARSHOT_URL", "EARSHOT_ADMIN_URL"})
_COMMAND_SECRETS: Final = ("project_key", "org_key", "engines_key")
_TESTS: Final = "EARSHOT_TEST_"
#: The prefix of the directories that hold lanes; the generation follows.
LANES: Final = "lanes-"
#: The file of the placement of partitions on lanes, in the directory of the log.
PLACEMENT: Final = "lanes"
#: Settings that are for the machine, and divided among its lanes, besides those that have a least value.
SHARED: Final = (
    "workers",
    "upload_spool_bytes",
    "speech_concurrency",
    "caption_concurrency",
    "translation_concurrency",
    "speaker_concurrency",
)


def _field(setting: FieldInfo) -> Any:
    """Return a setting of the edge as pydantic has it."""
    kind, (about, *_) = setting.type.__origin__, setting.type.__metadata__
    bounds = {name: getattr(about, name) for name in ("ge", "gt", "le", "lt")}
    return kind, Field(default=setting.default, description=about.description, **bounds)


if TYPE_CHECKING:

    class EdgeFields(BaseSettings): ...
else:
    EdgeFields = create_model(
        "EdgeFields", __base__=BaseSettings, **{one.name: _field(one) for one in msgspec.structs.fields(EdgeSettings)}
    )


class Lane(msgspec.Struct, frozen=True):
    """One of the lanes of a machine (see `infra.service.lanes`)."""

    number: int = 0
    count: int = 1
    #: Counts the changes of the number of lanes; 0 in a directory that never had several.
    generation: int = 0

    def share(self, total: int, least: int = 1) -> int:
        """Return this lane's part of what is for the machine, at least `least`."""
        return max(least, total // self.count)

    def place(self, directory: Path) -> Path:
        """Return the lane's place in a directory of the machine."""
        return directory / f"{LANES}{self.generation}" / str(self.number) if self.generation else directory


class _Placement(msgspec.Struct, frozen=True):
    """The part of a placement (see `infra.service.lanes`) that has the partitions."""

    partitions: tuple[frozenset[int], ...]


#: Settings that need another one.
_NODE_TLS: Final = (
    ("node_certificate", "node_key"),
    ("node_key", "node_certificate"),
    ("node_listen", "node_certificate"),
)


class Settings(KafkaSettings, EngineSettings, EdgeFields, ServiceSettings):
    """Every setting, with its default; the variable is EARSHOT_ and the field's name in capitals."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, hide_input_in_errors=True)
    _lane: Lane = PrivateAttr(default=Lane())
    _cores: int = PrivateAttr(default_factory=lambda: cores.usable())

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        queued, arriving = _room_for(self.chunk_bytes)
        if self.queue_bytes < queued:
            raise ValueError(f"{PREFIX}QUEUE_BYTES: must hold the largest chunk, {queued} bytes")
        if self.edge.body_bytes < arriving:
            raise ValueError(f"{PREFIX}BODY_BYTES: must hold four of the largest chunks, {arriving} bytes")
        if self.bootstrap_org_key is not None and self.bootstrap_org_key == self.bootstrap_project_key:
            raise ValueError(f"{PREFIX}BOOTSTRAP_ORG_KEY: must differ from {PREFIX}BOOTSTRAP_PROJECT_KEY")
        if self.admin_key is not None and self.admin_key in (self.bootstrap_project_key, self.bootstrap_org_key):
            raise ValueError(f"{PREFIX}ADMIN_KEY: must differ from the keys of the demo project and organization")
        if self.admin_listen is not None and self.admin_key is None:
            raise ValueError(f"{PREFIX}ADMIN_LISTEN: needs {PREFIX}ADMIN_KEY too")
        for one, other in _NODE_TLS:
            if getattr(self, one) is not None and getattr(self, other) is None:
                raise ValueError(f"{variable(one)}: needs {variable(other)} too")
        return self

    @property
    def edge(self) -> EdgeSettings:
        """The settings that the edge reads."""
        return msgspec.convert(self, EdgeSettings, from_attributes=True)

    def of_lane(self, lane: Lane) -> Settings:
        """Return the settings of a lane: its own directories, and its share of what is for the machine."""
        queued, arriving = _room_for(self.chunk_bytes)
        shares = {
            "queue_bytes": lane.share(self.queue_bytes, queued),
            "body_bytes": lane.share(self.edge.body_bytes, arriving),
            **{name: lane.share(getattr(self, name)) for name in SHARED},
        }
        one = self.model_copy(update=shares if lane.count > 1 else {})
        one._lane = lane
        return one

    @property
    def lane(self) -> Lane:
        """The lane that these settings are of."""
        return self._lane

    @property
    def lane_count(self) -> int:
        """Lanes of this machine."""
        return self.lanes or max(1, min(self._cores // CORES_OF_A_LANE, self.partition_count))

    @property
    def own(self) -> Path:
        """Directory of what this lane has for itself; `data` holds what the lanes share, too."""
        return self._lane.place(self.data)

    @property
    def log(self) -> Broker:
        """The log; by default the embedded one, in `log` under the data directory."""
        broker = urls.parse_broker(self.broker, self.data / "log")
        if isinstance(broker, urls.Embedded):
            return msgspec.structs.replace(broker, directory=self._lane.place(broker.directory))
        return broker

    @property
    def database(self) -> str:
        """URL of the control plane's database with its asynchronous driver."""
        return self.database_url or f"sqlite+aiosqlite:///{self.data / 'earshot.db'}"

    @property
    def secrets(self) -> list[str]:
        """Every key that is set; none may be shown."""
        return [value.get_secret_value() for _, value in self if isinstance(value, SecretStr)]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of audio in the largest chunk under `/sense/api/v1`."""
        queued, arriving = _room_for(ROOMY_CHUNK_LIMIT)
        roomy = self.log.kind == "embedded" and self.queue_bytes >= queued and self.edge.body_bytes >= arriving
        return self.chunk_limit or (ROOMY_CHUNK_LIMIT if roomy else catalog.DEFAULT_CHUNK_LIMIT)

    @property
    def partition_count(self) -> int:
        """Partitions of every topic: as set, or as many as the data directory has, or as a new one gets."""
        if self.partitions is not None:
            return self.partitions
        if (file := self.placement_file) is None:
            return KAFKA_PARTITIONS
        with suppress(OSError, msgspec.MsgspecError):
            return sum(map(len, msgspec.json.decode(file.read_bytes(), type=_Placement).partitions))
        # A log without a placement is of one lane.
        begins_with_lanes = not (file.parent / "log").exists() and (self.lanes or self._cores // CORES_OF_A_LANE) > 1
        return LANES_PARTITIONS if begins_with_lanes else EMBEDDED_PARTITIONS

    @property
    def placement_file(self) -> Path | None:
        """File of the placement of partitions on lanes, whether it exists or not; None on Kafka."""
        broker = urls.parse_broker(self.broker, self.data / "log")
        return broker.directory / PLACEMENT if isinstance(broker, urls.Embedded) else None


def _room_for(chunk_limit: int) -> tuple[int, int]:
    """Return the bytes that the queue and bodies need for chunks of this size."""
    return catalog.record_limit(chunk_limit), 4 * chunk_body(chunk_limit)


def _is_secret(kind: object) -> bool:
    return kind is SecretStr or any(map(_is_secret, get_args(kind)))


#: Fields that may be given by file, as `EARSHOT_..._FILE`; a database URL may contain a password.
SECRETS: Final = (
    *(field for field, about in Settings.model_fields.items() if _is_secret(about.annotation)),
    "database_url",
)


def load() -> Settings:
    """Read the settings from the environment and from secret files; warn on stderr about unknown variables.

    Raises:
        SystemExit: 2, after one line on stderr for each wrong setting.
    """
    for warning in typing_errors(os.environ):
        print(f"earshot: {warning}", file=sys.stderr)
    environment = {name.upper(): value for name, value in os.environ.items()}
    secrets, wrong = {}, []
    for field in SECRETS:
        try:
            if environment.get(variable(field + secret_files.SUFFIX)):
                secrets[field] = secret_files.secret(field, environment)
        except WrongSetting as error:
            wrong.append(str(error))
    try:
        settings = Settings(**secrets)  # type: ignore[arg-type]
    except ValidationError as error:
        wrong += faults(error)
    if not wrong:
        return settings
    for line in wrong:
        print(f"earshot: {line}", file=sys.stderr)
    raise SystemExit(2)


def typing_errors(names: Iterable[str]) -> list[str]:
    """Return a line for each of `names` that looks like a setting but is not one."""
    secrets = (*SECRETS, *_COMMAND_SECRETS)
    fields = {variable(field) for field in (*Settings.model_fields, *secrets)}
    fields |= {variable(field + secret_files.SUFFIX) for field in secrets}
    lines = []
    for name in sorted(names):
        if name.upper() in fields or name in _COMMANDS or not name.startswith(PREFIX) or name.startswith(_TESTS):
            continue
        near = difflib.get_close_matches(
            name.removeprefix(PREFIX), [field.removeprefix(PREFIX) for field in sorted(fields)], n=1
        )
        lines.append(f"{name} is not a setting" + (f"; did you mean {PREFIX}{near[0]}?" if near else ""))
    return lines


def faults(error: ValidationError) -> list[str]:
    """Return a line for each fault: the variable and the fault, never the value, which may be secret."""
    lines = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        message = fault["msg"].removeprefix("Value error, ").replace("Input should", "must")
        name = f"{variable(str(fault['loc'][0]))}: " if fault["loc"] else ""
        lines.append(name + message)
    return lines
