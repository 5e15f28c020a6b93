"""What the gateway refuses, in OpenAI's shape, each with one sentence that says why."""

from typing import Any

from adapters_store.versions.manifest import Family


class GatewayError(Exception):
    """An answer other than success: HTTP status, a sentence for the user, and the field it is about."""

    def __init__(self, status: int, message: str, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """OpenAI's error object, which its client libraries turn into their own exceptions."""
        kind, code = KINDS.get(self.status, ("api_error", None))
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": code}}

    def headers(self) -> dict[str, str]:
        """Headers to send along: when to come back, and how to authenticate."""
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        return headers | {"WWW-Authenticate": "Bearer"} if self.status == 401 else headers


KINDS = {
    400: ("invalid_request_error", None),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "not_your_client"),
    404: ("not_found_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("invalid_request_error", "body_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    503: ("service_unavailable", "unavailable"),
}


def invalid(message: str, param: str | None = None) -> GatewayError:
    """400: the request itself is at fault."""
    return GatewayError(400, message, param=param)


def not_opened(model: str) -> GatewayError:
    """404: the key opens nothing of that name. Whether others have it is not told, in these words or in the time."""
    return GatewayError(404, f"model {model!r} is not among those this key opens", "model")


def other_route(model: str, family: Family) -> GatewayError:
    """400: what answers for the model is of that family, which the route that was asked is not for."""
    does = {
        "mllm": "chats and has no classes: use /v1/chat/completions",
        "clip": "names images and does not chat: use /v1/classify",
    }
    return invalid(f"model {model!r} {does[family]}", "model")


def unavailable(message: str, retry_after_s: int = 5) -> GatewayError:
    """503: the request was fine, try again in ``retry_after_s`` seconds."""
    return GatewayError(503, message, retry_after_s=retry_after_s)


class EngineUnreachableError(GatewayError):
    """503: nobody answers on the engine's socket."""

    def __init__(self) -> None:
        super().__init__(503, "the engine that answers is not running; it is being started again", retry_after_s=10)
