"""Settings: defaults, one line for each wrong one, no secrets in messages, and connections to other services."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from pydantic import ValidationError

from app.options import MIB
from infra import urls
from infra.cli.settings import markdown
from infra.engine_settings import EngineName
from infra.errors import WrongSetting, variable
from infra.settings import SECRETS, Lane, Settings, faults, load, typing_errors
from infra.urls import Broker, Embedded, Kafka
from streams import cores
from streams.kafka.connection import KafkaConnection
from streams.kafka.credentials import TokenClient
from tests.conftest import ROOT
from topics import catalog

PAGE = ROOT / "docs" / "settings.md"


def refused(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the output of a start that these settings end."""
    with pytest.raises(SystemExit) as stopped:
        load()
    assert stopped.value.code == 2
    return [line.removeprefix("earshot: ") for line in capsys.readouterr().err.splitlines()]


def test_defaults_need_no_broker() -> None:
    settings = load()
    assert (settings.host, settings.port, settings.model, settings.partition_count) == ("127.0.0.1", 8000, None, 4)
    assert settings.log == Embedded(Path("data/log"))
    assert settings.database == "sqlite+aiosqlite:///data/earshot.db"
    assert settings.workers >= 1
    concurrency = [settings.engine(name).concurrency for name in get_args(EngineName)]
    assert (concurrency, settings.engine("translation").timeout) == ([4, 4, 2, 4], 30)


def test_settings_are_read_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_BROKER", "kafka://a:9092,b:9092")
    monkeypatch.setenv("EARSHOT_DATA", "/srv/earshot")
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgres://u:p@h/n")
    monkeypatch.setenv("EARSHOT_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("EARSHOT_BOOTSTRAP_PROJECT_KEY", "any twenty characters")
    monkeypatch.setenv("EARSHOT_PORT", "")
    monkeypatch.setenv("EARSHOT_SPEECH_URL", "http://[::1]:8081/v1?beam=5")
    monkeypatch.setenv("EARSHOT_BUNDLED_ENGINES", "false")
    settings = load()
    assert (settings.speech_url, settings.caption_url) == ("http://[::1]:8081/v1?beam=5", None)
    assert (settings.bundled_engines, settings.speech_timeout, settings.caption_timeout) == (False, 30, 120)
    assert settings.log == Kafka(("a:9092", "b:9092"))
    assert settings.partition_count == 16
    assert settings.database == "postgresql+asyncpg://u:p@h/n"
    assert settings.log_level == "warning"
    assert settings.port == 8000
    assert settings.bootstrap_project_key is not None
    assert settings.bootstrap_project_key.get_secret_value() == "any twenty characters"


def test_data_directory_may_be_below_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/home")
    monkeypatch.setenv("EARSHOT_DATA", "~/earshot")
    assert load().database == "sqlite+aiosqlite:////srv/home/earshot/earshot.db"


def test_paths_follow_data_directory(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, partitions=8)
    assert settings.log == Embedded(tmp_path / "log")
    assert settings.database == f"sqlite+aiosqlite:///{tmp_path}/earshot.db"
    assert settings.partition_count == 8


@pytest.mark.parametrize(
    ("usable", "given", "lanes", "partitions"),
    [
        (2, {}, 1, 4),
        (7, {}, 1, 4),
        (8, {}, 2, 16),
        (16, {}, 4, 16),
        (96, {}, 16, 16),
        (16, {"lanes": 1}, 1, 4),
        (2, {"lanes": 3}, 3, 16),
        (16, {"partitions": 2}, 2, 2),
        (16, {"partitions": 1}, 1, 1),
        (16, {"broker": "kafka://a:9092"}, 4, 16),
        (4, {"broker": "kafka://a:9092"}, 1, 16),
    ],
)
def test_lanes_follow_cores_and_partitions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, usable: int, given: dict[str, Any], lanes: int, partitions: int
) -> None:
    monkeypatch.setattr(cores, "usable", lambda: usable)
    settings = Settings(data=tmp_path, **given)
    assert (settings.lane_count, settings.partition_count) == (lanes, partitions)


@pytest.mark.parametrize(("there", "lanes"), [(None, 4), (16, 4), (4, 4), (3, 3)])
def test_directory_keeps_its_partitions_whatever_the_cores_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, there: int | None, lanes: int
) -> None:
    """Without a file of the placement a log has one lane."""
    (tmp_path / "log" / "log").mkdir(parents=True)
    if there is not None:
        placed = {"generation": 0, "partitions": [list(range(there))]}
        (tmp_path / "log" / "lanes").write_text(json.dumps(placed))
    monkeypatch.setattr(cores, "usable", lambda: 16)
    settings = Settings(data=tmp_path)
    assert (settings.partition_count, settings.lane_count) == (there or 4, lanes)
    assert settings.of_lane(Lane(1, 2, 3)).partition_count == (there or 4)
    monkeypatch.setattr(cores, "usable", lambda: 2)
    assert (Settings(data=tmp_path).partition_count, Settings(data=tmp_path).lane_count) == (there or 4, 1)
    assert Settings(data=tmp_path, partitions=8).partition_count == 8


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 5 * MIB),
        ({"broker": "kafka://here:9092"}, MIB),
        ({"queue_bytes": 2 * MIB}, MIB),
        ({"body_bytes": 8 * MIB}, MIB),
        ({"chunk_limit": 2 * MIB}, 2 * MIB),
        ({"chunk_limit": 2 * MIB, "broker": "kafka://here:9092"}, 2 * MIB),
    ],
    ids=str,
)
def test_chunk_limit_follows_broker_and_buffer_sizes(given: dict[str, Any], expected: int) -> None:
    assert Settings(**given).chunk_bytes == expected


def test_each_wrong_setting_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("EARSHOT_PORT", "x")
    monkeypatch.setenv("EARSHOT_WORKERS", "x")
    assert [line.split(":")[0] for line in refused(capsys)] == ["EARSHOT_PORT", "EARSHOT_WORKERS"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("session_idle_seconds", "99999999999999999999"),
        ("job_retention_seconds", "99999999999999999999"),
        ("audio_retention_seconds", "99999999999999999999"),
        ("speech_idle_seconds", "inf"),
    ],
)
def test_times_that_cannot_be_stored_are_rejected(
    field: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable(field), value)
    [line] = refused(capsys)
    assert line.startswith(f"{variable(field)}: must be ")


def test_identical_bootstrap_keys_are_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "EARSHOT_BOOTSTRAP_PROJECT_KEY", "EARSHOT_BOOTSTRAP_ORG_KEY":
        monkeypatch.setenv(name, "one key for both of them")
    (line,) = refused(capsys)
    assert line.startswith("EARSHOT_BOOTSTRAP_ORG_KEY: must differ")


def test_misspelt_setting_is_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("EARSHOT_PORTT", "1")
    assert load().port == 8000
    assert capsys.readouterr().err == "earshot: EARSHOT_PORTT is not a setting; did you mean EARSHOT_PORT?\n"


def test_unrelated_variables_are_ignored() -> None:
    assert typing_errors(["PATH", "EARSHOT_PORT", "EARSHOT_TEST_POSTGRES_URL"]) == []
    assert typing_errors(["EARSHOT_QQQ"]) == ["EARSHOT_QQQ is not a setting"]


def test_settings_page_matches_code() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("<!-- settings -->\n")
    table, _, _ = rest.partition("\n<!-- /settings -->")
    assert table == markdown(), "put what `earshot config --markdown` prints between the marks of docs/settings.md"


KEY = "a-secret-of-many-letters"


@pytest.mark.parametrize(
    ("mechanism", "unused"),
    [("PLAIN", "kafka_sasl_oauthbearer_client_secret"), ("OAUTHBEARER", "kafka_sasl_password")],
)
def test_every_secret_can_be_read_from_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str, unused: str
) -> None:
    used = [field for field in SECRETS if field != unused]
    assert {"admin_key", "bootstrap_org_key", "speech_key", "kafka_sasl_password", "database_url"} <= {*SECRETS}
    for field in used:
        (tmp_path / field).write_text("postgresql://u:p@h/n" if field == "database_url" else f"{KEY}-{field}\n")
        monkeypatch.setenv(f"{variable(field)}_FILE", str(tmp_path / field))
    monkeypatch.setenv("EARSHOT_KAFKA_SECURITY_PROTOCOL", "sasl_ssl")
    monkeypatch.setenv("EARSHOT_KAFKA_SASL_MECHANISM", mechanism)
    if mechanism == "PLAIN":
        monkeypatch.setenv("EARSHOT_KAFKA_SASL_USERNAME", "u")
    else:
        monkeypatch.setenv("EARSHOT_KAFKA_SASL_OAUTHBEARER_CLIENT_ID", "u")
        monkeypatch.setenv("EARSHOT_KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL", "https://idp/token")
    for name in ("certificate", "key"):
        monkeypatch.setenv(f"EARSHOT_KAFKA_SSL_{name.upper()}_LOCATION", "/a.pem")
    settings = load()
    assert settings.database == "postgresql+asyncpg://u:p@h/n"
    assert sorted(settings.secrets) == sorted(f"{KEY}-{field}" for field in used if field != "database_url")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "EARSHOT_ADMIN_KEY_FILE: {} cannot be read: No such file or directory"),
        (b"", "EARSHOT_ADMIN_KEY_FILE: {} is empty"),
        (b" \n", "EARSHOT_ADMIN_KEY_FILE: {} is empty"),
        (b"secret\nsecret\n", "EARSHOT_ADMIN_KEY_FILE: {} must hold one line"),
        (b"secret" * 20_000, "EARSHOT_ADMIN_KEY_FILE: {} must hold one line"),
        (b"secret\xff", "EARSHOT_ADMIN_KEY_FILE: {} is not UTF-8"),
        (b"secret", "EARSHOT_ADMIN_KEY: needs at least 20 characters"),
    ],
)
def test_unusable_secret_file_is_one_line(
    content: bytes | None,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("EARSHOT_ADMIN_KEY_FILE", str(file))
    assert refused(capsys) == [line.format(file)]


def test_secret_and_its_file_are_mutually_exclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text(KEY)
    monkeypatch.setenv("EARSHOT_ADMIN_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", "")
    assert load().admin_key is not None
    monkeypatch.setenv("EARSHOT_ADMIN_KEY", f"{KEY}2")
    assert refused(capsys) == ["EARSHOT_ADMIN_KEY: is set, and so is EARSHOT_ADMIN_KEY_FILE; set one of them"]


def test_welcome_commands_hide_key_from_process_list() -> None:
    from infra.cli.serve import WELCOME

    key = "esp_0123"
    text = WELCOME.format(url="http://here", key_lines="", dashboard="", key=key, recording="a.flac", earshot="earshot")
    lines = [line.strip() for line in text.splitlines() if key in line]
    assert lines == [f"export EARSHOT_URL=http://here EARSHOT_PROJECT_KEY={key}"]
    # A variable as a program's argument reveals its value; `echo` is a shell builtin.
    assert not re.search(r"(curl|earshot)[^|]*EARSHOT_PROJECT_KEY", text.split("\n", 5)[-1])


HOSTS = ("a:9092", "b:9092")
AUTHORITIES = ROOT / "tests" / "unit" / "streams" / "kafka" / "authority.pem"
USER = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "scram-sha-512",
    "sasl_username": "earshot",
    "sasl_password": "secret-word",
}


TOKENS = {
    "security_protocol": "sasl_ssl",
    "sasl_mechanism": "oauthbearer",
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    "sasl_oauthbearer_client_id": "earshot",
    "sasl_oauthbearer_client_secret": "secret-word",
}


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    for field, value in values.items():
        monkeypatch.setenv(variable(f"kafka_{field}"), value)
    return Settings()


def test_kafka_connection_follows_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(monkeypatch).connection(HOSTS) == KafkaConnection(HOSTS)
    more = {"ssl_ca_location": str(AUTHORITIES), "ssl_endpoint_identification_algorithm": "none"}
    expected = KafkaConnection(
        HOSTS, "sasl_ssl", "SCRAM-SHA-512", "earshot", "secret-word", ssl_ca_location=AUTHORITIES
    )
    connection = settings(monkeypatch, **USER, **more).connection(HOSTS)
    assert connection == msgspec.structs.replace(expected, ssl_check_hostname=False)


def test_tokens_follow_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {"sasl_oauthbearer_scope": "kafka", "https_ca_location": str(AUTHORITIES)}
    connection = settings(monkeypatch, **TOKENS, **more).connection(HOSTS)
    tokens = TokenClient("https://idp/token", "earshot", "secret-word", "kafka", AUTHORITIES)
    assert connection == KafkaConnection(HOSTS, "sasl_ssl", "OAUTHBEARER", tokens=tokens)
    assert "secret-word" not in repr(tokens)
    monkeypatch.setenv("EARSHOT_KAFKA_HTTPS_CA_LOCATION", "/missing.pem")
    with pytest.raises(WrongSetting, match=r"EARSHOT_KAFKA_HTTPS_CA_LOCATION: /missing.pem: No such file"):
        Settings().connection(HOSTS)


def test_longest_prefix_gives_longest_topic_name(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = settings(monkeypatch, prefix="a" * 226).connection(HOSTS)
    assert max(len(connection.topic(topic.name)) for topic in catalog.topics(0)) == 249


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"security_protocol": "sasl_ssl"}, "SASL_MECHANISM: must be set for sasl_ssl"),
        ({**USER, "sasl_password": ""}, "SASL_PASSWORD: must be set for sasl_ssl"),
        (
            {**TOKENS, "sasl_oauthbearer_client_secret": ""},
            "SASL_OAUTHBEARER_CLIENT_SECRET: must be set for sasl_ssl",
        ),
        (
            {**TOKENS, "sasl_username": "earshot"},
            "SASL_USERNAME: EARSHOT_KAFKA_SASL_MECHANISM=OAUTHBEARER does not use it",
        ),
        (
            {**USER, "sasl_oauthbearer_scope": "kafka"},
            "SASL_OAUTHBEARER_SCOPE: EARSHOT_KAFKA_SASL_MECHANISM=SCRAM-SHA-512 does not use it",
        ),
        (
            {**USER, "security_protocol": "ssl"},
            "SASL_MECHANISM: needs EARSHOT_KAFKA_SECURITY_PROTOCOL=sasl_plaintext or sasl_ssl",
        ),
        (
            {**USER, "security_protocol": "sasl_plaintext", "ssl_ca_location": "ca.pem"},
            "SSL_CA_LOCATION: needs EARSHOT_KAFKA_SECURITY_PROTOCOL=ssl or sasl_ssl",
        ),
        (
            {"security_protocol": "ssl", "ssl_key_location": "key.pem"},
            "SSL_KEY_LOCATION: needs EARSHOT_KAFKA_SSL_CERTIFICATE_LOCATION too",
        ),
        (
            {"security_protocol": "ssl", "ssl_certificate_location": "certificate.pem"},
            "SSL_CERTIFICATE_LOCATION: needs EARSHOT_KAFKA_SSL_KEY_LOCATION too",
        ),
        (
            {"security_protocol": "ssl", "ssl_key_password": "secret-word"},
            "SSL_KEY_PASSWORD: needs EARSHOT_KAFKA_SSL_KEY_LOCATION too",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_conflicting_kafka_settings_are_one_line(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], line: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(monkeypatch, **values)
    assert faults(refused.value) == [f"EARSHOT_KAFKA_{line}"]


def test_missing_ca_file_names_its_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {"security_protocol": "ssl", "ssl_ca_location": str(tmp_path / "ca.pem")}
    with pytest.raises(WrongSetting, match=r"^EARSHOT_KAFKA_SSL_CA_LOCATION: .*ca\.pem: No such file"):
        settings(monkeypatch, **values).connection(HOSTS)


def test_repr_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EARSHOT_DATABASE_URL", "postgresql://u:secret-word@h/n")
    monkeypatch.setenv("EARSHOT_BOOTSTRAP_ORG_KEY", "a secret-word of 20 letters")
    read = settings(monkeypatch, **USER)
    assert "secret-word" not in repr(read) + str(read) + repr(read.connection(HOSTS))
    assert "secret-word" in read.secrets


DEFAULT = Path("somewhere/log")


@pytest.mark.parametrize(
    ("url", "broker"),
    [
        ("embedded://", Embedded(DEFAULT)),
        ("embedded://?sync=0", Embedded(DEFAULT, sync=False)),
        ("embedded://?sync=1", Embedded(DEFAULT)),
        ("embedded:///var/lib/log", Embedded(Path("/var/lib/log"))),
        ("embedded://here/log?sync=0", Embedded(Path("here/log"), sync=False)),
        ("kafka://one:9092", Kafka(("one:9092",))),
        (
            "kafka://10.0.0.1:9092, two.example:9093,[::1]:9094/",
            Kafka(("10.0.0.1:9092", "two.example:9093", "[::1]:9094")),
        ),
    ],
)
def test_broker_urls_are_parsed(url: str, broker: Broker) -> None:
    assert urls.parse_broker(url, DEFAULT) == broker


@pytest.mark.parametrize(
    ("url", "driven"),
    [
        ("sqlite:///data/e.db", "sqlite+aiosqlite:///data/e.db"),
        ("sqlite:////var/e.db", "sqlite+aiosqlite:////var/e.db"),
        ("sqlite+aiosqlite:///e.db", "sqlite+aiosqlite:///e.db"),
        ("postgres://u:p@h/n", "postgresql+asyncpg://u:p@h/n"),
        (
            "postgresql://u:p%40@h:5/n?sslmode=require&target_session_attrs=any",
            "postgresql+asyncpg://u:p%40@h:5/n?ssl=require&target_session_attrs=any",
        ),
        ("postgresql+asyncpg://h/n", "postgresql+asyncpg://h/n"),
    ],
)
def test_database_urls_get_async_driver(url: str, driven: str) -> None:
    assert urls.database_url(url) == driven
    assert urls.database_url(driven) == driven


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("foo=bar", "has the unknown option foo: remove it, or use one of database, gsslib, host, "),
        ("sslmode=require&Host=h", "has the unknown option Host: "),
        ("statement_cache_size=0", "has the unknown option statement_cache_size: .* prepared_statement_cache_size, "),
        ("prepared_statement_cache_size=x", "has prepared_statement_cache_size=x, which must be a number"),
    ],
)
def test_wrong_options_of_postgresql_are_named(option: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        urls.database_url(f"postgresql://h/n?{option}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+asyncpg://u:secret@h/n", "postgresql+asyncpg://u:***@h/n"),
        ("postgresql://u:a:secret@b@h/n", "postgresql://u:***@h/n"),
        ("postgresql://h/n?user=u&password=secret&a=1", "postgresql://h/n?user=u&password=***&a=1"),
        ("kafka://u:secret@one:9092", "kafka://u:***@one:9092"),
        ("kafka://one:9092,two:9092", "kafka://one:9092,two:9092"),
        ("sqlite+aiosqlite:///data/e.db", "sqlite+aiosqlite:///data/e.db"),
        ("data", "data"),
    ],
)
def test_url_passwords_are_redacted(url: str, shown: str) -> None:
    assert urls.redact_url(url) == shown
