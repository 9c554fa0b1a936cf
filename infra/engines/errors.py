"""Errors in the format of OpenAI's protocols: a message, a type, and sometimes a code."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from topics.errors import AudioError, EarshotError, NotFound, Unavailable


class UnknownModel(NotFound):
    """The request names a model that this server does not have."""


def error_response(
    status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None
) -> Response:
    """Return an error in OpenAI's format."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status, headers)


async def earshot_error(request: Request, error: Exception) -> Response:
    """Answer one of our errors with the HTTP status of its class."""
    assert isinstance(error, EarshotError)
    if isinstance(error, Unavailable):
        return error_response(503, str(error), headers={"Retry-After": str(error.retry_after)})
    if isinstance(error, AudioError):
        return error_response(400, str(error), "invalid_audio")
    return error_response(error.status, str(error), "model_not_found" if isinstance(error, UnknownModel) else None)


async def http_exception(request: Request, error: Exception) -> Response:
    """Answer an error of the framework, for example an unknown path."""
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, error.detail)


async def unexpected_error(request: Request, error: Exception) -> Response:
    """Answer any other error with 500; the server's log has the traceback."""
    return error_response(500, "the engine failed")


def check_model(requested: object, model: str) -> None:
    """Check that a request names `model`, or no model.

    Raises:
        UnknownModel: it names another one.
    """
    if requested and requested != model:
        raise UnknownModel(f"model: {str(requested)[:80]!r} is unknown; this endpoint serves {model!r}")
