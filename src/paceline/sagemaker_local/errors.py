"""What the API answers instead of doing it, in AWS's own codes and wording."""

from paceline.spelling import plural


class ApiError(Exception):
    """A request that is answered with an error: `code` is AWS's, `message` is written as the service writes it."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> ApiError:
    """SageMaker's ValidationException."""
    return ApiError("ValidationException", message)


def not_found() -> ApiError:
    """What describe and stop answer for a name that no job has."""
    return invalid("Requested resource not found.")


def constraints_failed(findings: list[str]) -> ApiError:
    """Every constraint that a request misses, in one message.

    Holds:   the number in the message is len(findings)
    """
    number = len(findings)
    return invalid(f"{number} validation {plural(number, 'error')} detected: {'; '.join(findings)}")
