"""Every setting with wrong values: one line that begins with its variable, and exit status 2."""

import asyncio
from pathlib import Path
from unittest import mock

import pytest

from infra.errors import WrongSetting, variable
from infra.service.service import EarshotService
from infra.settings import Settings, load
from streams.processes.zygote_process import Zygote
from streams.workers import COMMAND

pytestmark = pytest.mark.slow

ENGINE_URLS = ("zzz", "ftp://here", "http://", "http://here:99999", "http://me:sesame@here", "http://a b")
KEYS = ("sesame", "sesame with a \a bell in its many letters")
COUNTS = ("0", "-1", "1.5", "many")
SECONDS = ("-1", "nan", "soon")

#: `{file}` is the path of a file, `{missing}` a missing path.
WRONG: dict[str, tuple[str, ...]] = {
    "host": ("no.such.host.invalid", "999.1.1.1", "192.0.2.1", "http://127.0.0.1"),
    "port": ("-1", "65536", "http"),
    "data": ("{file}", "{file}/below", "/proc/earshot"),
    "broker": (
        "zzz://x",
        "kafka:one:9092",
        "kafka://",
        "kafka://here",
        "kafka://here:0",
        "kafka://one:9092,",
        "kafka://one:65536",
        "embedded://?sync=2",
        "embedded://?fsync=0",
        "embedded://{file}",
        "embedded:///proc/earshot",
    ),
    "database_url": (
        "zzz://x",
        "mysql://u:sesame@h/n",
        "postgresql+psycopg://h/n",
        "sqlite://",
        "sqlite://data/earshot.db",
        "sqlite:////proc/earshot.db",
        "sqlite:///{missing}/earshot.db",
        "sqlite:////dev/null",
        "sqlite:///{file}/earshot.db",
        "postgresql://u:p@here:99999/name",
        "postgresql://u:p@here:port/name",
    ),
    "node_listen": ("here", "127.0.0.1:8443"),
    "node_certificate": ("{file}", "{missing}"),
    "node_key": ("{file}",),
    "node_ca": ("{file}", "{missing}"),
    "advertise": ("zzz", "here:8000", "http://", "http://here:99999", "http://here/below", "http://here?x=1"),
    "partitions": ("0", "4097", "many"),
    "model": ("nomodel", "{file}", "{missing}"),
    "chunk_limit": ("0", "1048575", "67108865", "1M"),
    "bootstrap_project_key": KEYS,
    "bootstrap_org_key": KEYS,
    "key_cache_seconds": ("-1", "61", "long"),
    "queue_bytes": ("0", "1000000", "64M"),
    "poll_seconds": SECONDS,
    "log_level": ("loud",),
    "log_format": ("xml",),
    "kafka_prefix": ("audio team", "a" * 227),
    "kafka_security_protocol": ("tls",),
    # Options of a protocol are refused without it.
    "kafka_sasl_mechanism": ("GSSAPI", "PLAIN"),
    "kafka_sasl_username": ("earshot",),
    "kafka_sasl_password": ("sesame",),
    "kafka_sasl_oauthbearer_token_endpoint_url": ("idp/token", "https://idp/token"),
    "kafka_sasl_oauthbearer_client_id": ("earshot",),
    "kafka_sasl_oauthbearer_client_secret": ("sesame",),
    "kafka_sasl_oauthbearer_scope": ("kafka",),
    "kafka_https_ca_location": ("{file}", "{missing}"),
    "kafka_ssl_ca_location": ("{file}", "{missing}"),
    "kafka_ssl_certificate_location": ("{file}", "{missing}"),
    "kafka_ssl_key_location": ("{file}", "{missing}"),
    "kafka_ssl_key_password": ("sesame",),
    "kafka_ssl_endpoint_identification_algorithm": ("http", "none"),
    "kafka_session_seconds": ("5", "61", "long"),
    "standbys": ("-1", "4", "many"),
    "job_audio_seconds": SECONDS,
    "analyze_limit": ("0", "268435457"),
    "upload_idle_seconds": ("0", *SECONDS),
    "cors_origins": (
        "*",
        "null",
        "app.example.org",
        "https://*.example.org",
        "https://app.example.org/",
        "https://App.example.org",
        "https://me:sesame@app.example.org",
        "https://app.example.org,",
        "ftp://app.example.org",
        "https://app.example.org:99999",
        "https://app.example.org:443",
    ),
    "key_tries": ("0", *SECONDS),
    "upload_free_bytes": ("-1", "many"),
    **{f"{engine}_url": ENGINE_URLS for engine in ("speech", "caption", "translation", "speaker")},
    **{f"{engine}_key": ("two sesames", "sesame\a") for engine in ("speech", "caption", "translation", "speaker")},
    **{f"{engine}_model": ("x" * 201,) for engine in ("speech", "caption", "speaker")},
    **{f"{engine}_timeout": ("0", "3601", *SECONDS) for engine in ("speech", "caption", "translation", "speaker")},
    **{f"{engine}_concurrency": COUNTS for engine in ("speech", "caption", "translation", "speaker")},
    "speech_piece_seconds": ("0", "601"),
    "speech_threads": ("65", *COUNTS),
    "speech_batch": ("33", *COUNTS),
    "speech_idle_seconds": ("0", *SECONDS),
    "speaker_threshold": ("-1", "1", "nan"),
    "voices_url": ("zzz://x", "{file}", "/proc/voices"),
    "lanes": ("0", "65", "two"),
    "delivery_networks": ("home", "10.0.0.1/8", "10.0.0.0/8;fd00::/8"),
    "delivery_retries": ("soon", "0,-1", "0,inf", "600000", ",".join("0" * 21)),
    "erase_seconds": ("0", "10801", *SECONDS),
    "admin_key": (*KEYS, "a" * 40, "0123456789" * 3, "passpasspasspassword"),
    "admin_listen": ("192.0.2.1:8001", "localhost", "localhost:65536", ":8001", "127.0.0.1:0"),
    "trusted_proxies": ("-1", "17", "all"),
    **dict.fromkeys(["session_idle_seconds", "audio_retention_seconds", "workers", "kafka_replication"], COUNTS),
    **dict.fromkeys(["job_retention_seconds", "upload_limit", "upload_slowest", "body_bytes", "connections"], COUNTS),
    **dict.fromkeys(["connections_per_address", "uploads", "project_uploads", "upload_spool_bytes"], COUNTS),
    **dict.fromkeys(["project_sessions", "project_jobs"], COUNTS),
    **dict.fromkeys(["bundled_engines", "keep_voice", "dashboard", "docs"], ("perhaps",)),
    **dict.fromkeys(["job_reads_need_key", "sessions_need_key"], ("perhaps",)),
    "speech_models": (",", "small,,large", "x" * 129),
}


def test_every_setting_has_wrong_values() -> None:
    assert WRONG.keys() == Settings.model_fields.keys()


def refusal(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Start with the environment's settings; return the user-visible lines."""

    try:
        settings = load()
    except SystemExit:  # The status is checked with the messages of each setting.
        return [line.removeprefix("earshot: ") for line in capsys.readouterr().err.splitlines()]
    with pytest.raises(WrongSetting) as caught:
        asyncio.run(EarshotService(settings, Zygote(COMMAND)).run(mock.AsyncMock()))
    return str(caught.value).splitlines()


@pytest.mark.parametrize("field", WRONG)
def test_wrong_value_is_one_line_naming_setting(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, field: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("EARSHOT_PORT", "0")
    monkeypatch.setenv("EARSHOT_BUNDLED_ENGINES", "false")
    for value in WRONG[field]:
        monkeypatch.setenv(variable(field), value.format(file=tmp_path / "file", missing=tmp_path / "missing"))
        (line,) = refusal(capsys)
        assert line.startswith(f"{variable(field)}: "), (value, line)
        assert "pattern" not in line
        assert "sesame" not in line, "a secret is never shown"
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    ("engine", "must"),
    [
        ("SPEECH", "must be one of whisper-base, whisper-tiny.en"),
        ("CAPTION", "must be earshot-rules"),
        ("SPEAKER", "must be speaker-pair"),
    ],
)
def test_bundled_engine_rejects_unknown_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: str, must: str
) -> None:
    monkeypatch.setenv("EARSHOT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("EARSHOT_PORT", "0")
    monkeypatch.setenv(f"EARSHOT_{engine}_MODEL", "whisper-1")
    (line,) = refusal(capsys)
    assert line == f"EARSHOT_{engine}_MODEL: {must}, unless EARSHOT_{engine}_URL names another engine"
