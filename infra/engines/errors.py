"""Errors as OpenAI's protocols tell them: a message, a type, and where it helps a code."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.http.errors import status_of
from topics.errors import AudioError, EarshotError, NotFound, Unavailable


class UnknownModel(NotFound):
    """The request names a model that is not here."""


def reply(status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None) -> Response:
    """Return an error in the shape that OpenAI's clients read."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status, headers)


async def named(request: Request, error: Exception) -> Response:
    """Answer an error that has a name."""
    assert isinstance(error, EarshotError)
    if isinstance(error, Unavailable):
        return reply(503, str(error), headers={"Retry-After": str(error.retry_after)})
    if isinstance(error, AudioError):
        return reply(400, str(error), "invalid_audio")
    return reply(status_of(error), str(error), "model_not_found" if isinstance(error, UnknownModel) else None)


async def http(request: Request, error: Exception) -> Response:
    """Answer an error of the framework, such as an unknown path."""
    assert isinstance(error, HTTPException)
    return reply(error.status_code, error.detail)


async def unexpected(request: Request, error: Exception) -> Response:
    """Answer an error that has no name; whoever runs the server finds its traceback in the log."""
    return reply(500, "the engine failed")


def check_model(asked: object, model: str) -> None:
    """Accept the model that is here, or none.

    Raises:
        UnknownModel: another one was asked for.
    """
    if asked and asked != model:
        raise UnknownModel(f"model: {str(asked)[:80]!r} does not exist here, {model!r} does")
