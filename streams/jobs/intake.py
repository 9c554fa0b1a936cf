"""The intake agent of jobs: folds commands into heads, acceptances and part rows, and resolves the verdicts."""

from __future__ import annotations

from streams.folding.intake import Intake
from topics import codec
from topics.jobs import rules
from topics.jobs.records import JobCommand
from topics.jobs.rules import JobHead


class JobIntake(Intake[JobHead, JobCommand]):
    """Folds the records of the job command topic."""

    decode = staticmethod(codec.decode_job_command)
    step = staticmethod(rules.fold_command)
