"""What the operations of OpenAI's interface need."""

import msgspec

from app.jobs.job_context import JobContext
from topics.ports.speakers import Speakers


class OpenAIContext(msgspec.Struct, frozen=True):
    """The jobs, whose project keys are the bearer tokens, and the speakers that a request may name."""

    jobs: JobContext
    speakers: Speakers
