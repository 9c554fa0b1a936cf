"""Bills the services of jobs."""

from collections.abc import Iterable, Mapping

from streams.folding.billing import Biller
from streams.jobs.job_store import JobStore
from topics import keys
from topics.jobs.records import Billed
from topics.ports.ledger import Charge, MeteredService


class JobBiller(Biller[JobStore, Billed]):
    """Takes jobs one after another; which of their services are to be billed stands in the rows. Loop only."""

    activity = "billing"

    def due(self, id: str, store: JobStore) -> tuple[Iterable[Charge], Billed] | None:
        """Return the lines of the services that are not billed, and what says that they are; None where all are."""
        head, accepted = store.head(id), store.accepted(id)
        if head is None or accepted is None or not head.unbilled:
            return None
        who = (accepted.project, accepted.organization)
        charges = [
            Charge(id, MeteredService(entry.service), *who, entry.audio_ms, entry.model, head.created)
            for entry in head.unbilled
        ]
        return charges, Billed(tuple(entry.service for entry in head.unbilled))

    def named(self, billed: Mapping[str, Billed]) -> dict[str, object]:
        return {"job": keys.shown(next(iter(billed)))}
