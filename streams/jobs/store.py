"""The rows of the jobs of one partition, read with their types."""

from __future__ import annotations

from streams.folding.store import HeadStore, above
from topics import keys
from topics.jobs import rows
from topics.jobs.options import Service
from topics.jobs.records import Accepted
from topics.jobs.rules import JobHead
from topics.rows import AudioRow


class JobStore(HeadStore[JobHead]):
    """Typed reading of the jobs of one partition."""

    kind = keys.JOB
    index = keys.JOB_DUE

    def head_key(self, name: str) -> bytes:
        """Return the key of a job's head."""
        return keys.job_key(name, keys.JOB_HEAD)

    def decoded(self, value: bytes | None) -> JobHead | None:
        """Read a head row, None where there is none."""
        return rows.head(value)

    def accepted(self, job: str) -> Accepted | None:
        """Return what the job was accepted with, None while it is uploaded."""
        return rows.accepted(self.partition.get(keys.job_key(job, keys.ACCEPTED)))

    def parts(self, job: str, count: int) -> list[AudioRow]:
        """Return where the first `count` parts of the audio are, as far as they are kept without a gap."""
        return self.unbroken(*(keys.job_key(job, keys.PART, number) for number in (0, count)))

    def portion(self, job: str, service: Service, number: int) -> bytes | None:
        """Return one portion; those below `Entry.portions` are the result."""
        return self.partition.get(keys.portion_key(job, service, number))

    def tidy(self, job: str, head: JobHead) -> None:
        """Delete what a removed job has left: only its head may have reached the changelog before a crash."""
        prefix = self.prefix(job)
        kept = {self.head_key(job), keys.job_key(job, keys.ACCEPTED) if head.unbilled else b""}
        left = [key for key, _ in self.partition.scan(prefix, above(prefix)) if key not in kept]
        if left:
            self.partition.write(dict.fromkeys(left))
