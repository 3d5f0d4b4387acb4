"""The options of `paceline check` for a job that is to run elsewhere."""

from paceline.option import Option
from paceline.parts.engines.base import PLACES

OPTIONS = (
    Option("hosts", "Look at these hosts over ssh, and let them connect to each other.", "HOST,..."),
    Option(
        "option",
        "An option of the engine. May be repeated.",
        "KEY=VALUE",
        default=(),
        repeatable=True,
    ),
    Option(
        "engine",
        "Where the job is to run. The hosts that it would get there are looked at.",
        "|".join((*PLACES, "sagemaker-local")),
        default="local",
    ),
    Option("wait", "How long to wait for hosts that other jobs use.", "DURATION", default="30s"),
)
