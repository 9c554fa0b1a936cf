"""The OpenAPI documents equal routes and docs/; the AsyncAPI document covers every topic and golden record."""

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import validate

import app.parts
import earshot_client
from app.documents import asyncapi, build, openapi
from app.documents.markdown import page
from app.documents.operations import DOCUMENTS
from app.http.descriptions import operations_of
from app.http.resource import Part
from app.options import EdgeOptions
from tests.conftest import ROOT
from tests.examples import golden
from topics import catalog
from topics.choices import Choices

OPTIONS: Final = EdgeOptions(
    secret=b"the secret of this deployment", spool=Path("/the/spool"), admin_key=b"the operator's digest"
)
DOCUMENT: Final = build.everything(OPTIONS, with_operator=True)
PAGE: Final = ROOT / "docs" / "interface.md"


def test_every_operation_is_in_a_part() -> None:
    modules = [
        import_module(one.name) for one in pkgutil.walk_packages(app.__path__, "app.") if ".client" not in one.name
    ]
    described = {one.name for one in operations_of(*modules)}
    parts = [one for one in vars(app.parts).values() if isinstance(one, Part)]
    assert described == {one.name for part in (*parts, DOCUMENTS) for one in part.operations}


@pytest.mark.parametrize("name", ["openapi", "sessions"])
def test_documents_are_valid(name: str) -> None:
    made = msgspec.json.decode(build.build(name, OPTIONS, with_operator=True))
    validate(made)


def test_sessions_document_has_specification_version() -> None:
    made = build.sessions(OPTIONS)
    assert made["info"]["version"] == "1.1.0"
    assert {path.split("/")[1] for path in made["paths"]} == {"audio_sessions", "tags", "client-libraries"}


def _operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if isinstance(operation, dict):
                yield f"{method} {path}", operation


def test_schemas_and_fields_have_descriptions() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert schema.get("description"), name
        assert "." not in name, f"another type has this name: {name}"
    bodies = (
        content["schema"]
        for _, operation in _operations()
        for content in operation.get("requestBody", {"content": {}})["content"].values()
    )
    for schema in bodies:
        whole = schema
        if "$ref" in schema:
            whole = DOCUMENT["components"]["schemas"][schema["$ref"].removeprefix(openapi.REFERENCE)]
        for name, field in whole["properties"].items():
            assert field.get("description") or "$ref" in field, name


def test_examples_match_their_schemas() -> None:
    seen = 0
    for where, content in _contents():
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        judge = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        for name, example in content.get("examples", {}).items():
            error = next(judge.iter_errors(example["value"]), None)
            assert error is None or "multipart" in where, f"{where} {name}: {error}"
            seen += 1
    assert seen > 150


def _contents() -> Iterator[tuple[str, dict[str, Any]]]:
    for where, operation in _operations():
        answers = [*operation["responses"].values(), operation.get("requestBody", {})]
        for answer in answers:
            for media, content in answer.get("content", {}).items():
                yield f"{where} {media}", content


def test_json_operations_have_examples() -> None:
    for where, content in _contents():
        if "application/json" in where and ".json application/json" not in where:
            assert content["examples"], where


def test_documents_contain_no_secrets() -> None:
    told = b"".join(build.build(name, OPTIONS, True) for name in ("openapi", "sessions", "asyncapi"))
    for secret in (b"the secret of this", b"/the/spool", b"operator's digest", OPTIONS.secret.hex().encode()):
        assert secret not in told


def test_operator_paths_are_documented_only_if_served() -> None:
    assert any(path.startswith("/admin") for path in DOCUMENT["paths"])
    assert not any(path.startswith("/admin") for path in build.everything(OPTIONS)["paths"])
    assert "operatorKey" not in build.everything(OPTIONS)["components"]["securitySchemes"]


def test_documents_show_deployment_limits() -> None:
    options = msgspec.structs.replace(OPTIONS, chunk_limit=7_654_321, poll_seconds=4.5, job_reads_need_key=True)
    told = build.build("openapi", options).decode()
    assert "7654321" in told
    assert "up to 4.5 s" in told
    assert build.everything(options)["paths"]["/api/v1/jobs/{job_id}/stream"]["get"]["security"]
    assert not DOCUMENT["paths"]["/api/v1/jobs/{job_id}/stream"]["get"]["security"]


def test_docs_page_matches_document() -> None:
    made = re.search(r"<!-- interface -->\n(.*)\n<!-- end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert made is not None
    told = "put what `earshot interface markdown` prints between the marks of docs/interface.md"
    assert made.group(1) == page(DOCUMENT), told


#: Types of the client with the document's names, and those with other names there.
SAME: Final = (
    "SessionStatus Turn Word JobResult JobEntry "
    "JobPage SessionEntry SessionPage MissingPart JobProgress ServiceProgress SoundRule"
)
CLIENT: Final = {name: name for name in SAME.split()} | {
    "Session": "CreatedSession",
    "SoundResult": "SoundEntry",
    "SpeechResult": "SpeechEntry",
    "Insights": "InsightsResult",
    "InsightsResult": "InsightsEntry",
    "Caption": "CaptionText",
    "CaptionResult": "CaptionEntry",
    "TranslationResult": "TranslationEntry",
    "Job": "JobReport",
    "JobOptions": "RequestOptions",
    "SpeakerProfile": "SpeakerEntry",
    "SpeakerTurn": "RecognisedTurn",
    "OwnSound": "ShownSound",
    "SoundMark": "ShownMark",
    "SoundFigures": "ShownFigures",
    "FoundPassage": "FoundPassage",
    "Project": "ProjectReport",
    "DailyUsage": "UsageRow",
    "JobScores": "JobScores",
    "AudioLink": "AudioLink",
}


@pytest.mark.parametrize(("mine", "theirs"), CLIENT.items())
def test_client_types_match_document(mine: str, theirs: str) -> None:
    """The package has its own types; each of their fields must exist in the document."""
    kind = getattr(earshot_client, mine)
    described = DOCUMENT["components"]["schemas"][theirs]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    assert fields.keys() <= described["properties"].keys()
    needed = {name for name, field in fields.items() if field.required}
    assert needed <= set(described["required"]), "the client asks for what may be absent"


def test_client_knows_every_choice_of_project() -> None:
    choices = set(Choices.__struct_fields__)
    assert earshot_client.ProjectChoices.__annotations__.keys() == choices
    assert choices <= set(earshot_client.Project.__struct_fields__)


TOPICS: Final = asyncapi.document()


def judge(kind: str) -> Any:
    """Return a validator for records of a kind."""
    return jsonschema_rs.Draft7Validator(
        {"$ref": f"#/components/schemas/{kind}", "components": TOPICS["components"]}, validate_formats=True
    )


@pytest.mark.parametrize(
    "path", golden.examples(*golden.READERS, catalog.CHANGELOG), ids=lambda path: f"{path.parts[-3]}/{path.name}"
)
def test_golden_records_match_schema(path: Path) -> None:
    kind = type(golden.read(path)).__name__
    assert kind in TOPICS["channels"][golden.topic(path).replace(".", "-")]["messages"]
    value = path.with_suffix(".msgpack").read_bytes()
    content = msgspec.msgpack.decode(value[1:])
    judge(kind).validate(msgspec.to_builtins(content))  # binary in base64


def test_every_topic_lists_its_records() -> None:
    for topic in catalog.topics(0):
        channel = TOPICS["channels"][topic.name.replace(".", "-")]
        assert channel["address"] == topic.name
        if not topic.compact:
            assert set(channel["messages"]) >= set(topic.carries.split())


def test_array_items_are_titled_by_field() -> None:
    places = TOPICS["components"]["schemas"]["Chunk"]["items"]
    titles = ["record", "command", "sequence", "data", "idempotency", "predict", "captured"]
    assert [place["title"] for place in places] == titles


def test_wrong_record_is_rejected() -> None:
    assert not judge("Chunk").is_valid(["chunk", "c", "seven", "AAAA"])
    assert not judge("Chunk").is_valid(["open", "c", 7, "AAAA"])
