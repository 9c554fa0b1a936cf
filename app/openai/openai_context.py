"""What the operations of OpenAI's interface work with."""

from __future__ import annotations

import msgspec

from app.jobs.job_context import JobContext
from topics.ports.speakers import Speakers


class OpenAIContext(msgspec.Struct, frozen=True):
    """The jobs, whose project keys are bearers here, and the speakers whose names may be asked for."""

    jobs: JobContext
    speakers: Speakers
