"""The API's errors, with AWS's codes and wording."""

from paceline.spelling import plural


class ApiError(Exception):
    """A request gets an error as its answer. `code` is AWS's code, and `message` has the service's wording."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> ApiError:
    """SageMaker's ValidationException."""
    return ApiError("ValidationException", message)


def not_found() -> ApiError:
    """The answer of describe and stop for an unknown job name."""
    return invalid("Requested resource not found.")


def constraints_failed(findings: list[str]) -> ApiError:
    """Every constraint that a request violates, in one message.

    Holds:   the number in the message is len(findings)
    """
    number = len(findings)
    return invalid(f"{number} validation {plural(number, 'error')} detected: {'; '.join(findings)}")
