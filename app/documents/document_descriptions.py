"""The operations about the service itself, as the documents describe them; these documents are among them."""

from collections.abc import Mapping
from typing import Any, Final

from app import probes
from app.documents import operations
from app.http.descriptions import Answer, Description, Parameter, json_answer
from app.http.operation import Handler
from topics.errors import Unavailable

PROBES: Final[Mapping[Handler[Any], Description]] = {
    probes.about: Description(
        summary="Service info",
        answers={
            **json_answer("What this is.", earshot=probes.ABOUT),
            302: Answer(
                "A browser (`Accept: text/html`) is sent to the dashboard, or to the documents if there is none.",
                headers={"Location": "The page."},
            ),
        },
    ),
    probes.healthz: Description(
        summary="Liveness probe",
        answers=json_answer("Live.", well=probes.WELL),
        faults=(Unavailable("the service stops"),),
    ),
    probes.readyz: Description(
        summary="Readiness probe",
        answers=json_answer("Ready.", well=probes.READY, noted=probes.NOTED),
        faults=(Unavailable("partitions are being taken over"),),
    ),
    probes.metrics: Description(
        summary="Read the metrics",
        text="In Prometheus text format.",
        answers={
            200: Answer(
                "All of them.", (str,), {"chunks": "earshot_chunks_accepted_total 1042.0\n"}, media="text/plain"
            )
        },
    ),
}
_TAG: Final = {"ETag": "In `If-None-Match` it makes the answer 304 while nothing has changed."}
_SEEN: Final = Parameter(
    "If-None-Match", "header", str, "The `ETag` of an earlier answer.", example='"0123456789abcdef"'
)


def _document(summary: str, text: str) -> Description:
    return Description(
        summary=summary,
        text=text,
        parameters=(_SEEN,),
        answers={
            200: Answer("The document.", (dict[str, Any],), {}, headers=_TAG),
            304: Answer("Not modified.", headers=_TAG),
        },
    )


def _page(summary: str, media: str) -> Description:
    policy = {"Content-Security-Policy": "Nothing is loaded, run or called from elsewhere."}
    return Description(
        summary=summary,
        parameters=(_SEEN,),
        answers={
            200: Answer("The file.", (str,), {}, media=media, headers={**_TAG, **policy}),
            304: Answer("Not modified.", headers={**_TAG, **policy}),
        },
    )


OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.openapi: _document(
        "Read this document", "The whole interface. `x-origin` says who defined an operation first."
    ),
    operations.sessions_openapi: _document(
        "Read the document of audio sessions", "Only the session interface, with its specification's version, 1.1.0."
    ),
    operations.asyncapi: _document(
        "Read the document of the log", "AsyncAPI 3.0: the topics of the log and their records."
    ),
    operations.page: _page("Read and try the interface in a browser", "text/html"),
    operations.script: _page("The script of the page", "text/javascript"),
    operations.style: _page("The style of the page", "text/css"),
}
