"""The ports that the operations of OpenAI's interface use."""

import msgspec

from app.jobs.job_context import JobContext
from topics.ports.speakers import Speakers


class OpenAIContext(msgspec.Struct, frozen=True):
    """The jobs, whose project keys are the bearer tokens, and the speakers whose names a request may give."""

    jobs: JobContext
    speakers: Speakers
