"""Bills the services of jobs."""

from collections.abc import Iterable, Mapping

from streams.folding.billing import Biller
from streams.jobs.job_store import JobStore
from topics import keys
from topics.jobs.records import Billed
from topics.ports.ledger import Charge, MeteredService


class JobBiller(Biller[JobStore, Billed]):
    """Bills one job after another; the rows hold which of its services are unbilled. Loop only."""

    activity = "billing"

    def due(self, id: str, store: JobStore) -> tuple[Iterable[Charge], Billed] | None:
        """Return the ledger lines of unbilled services and the record that bills them; None if there are none."""
        head, accepted = store.head(id), store.accepted(id)
        if head is None or accepted is None or not head.unbilled:
            return None
        who = (accepted.project, accepted.organization)
        charges = [
            Charge(
                id,
                MeteredService(entry.service),
                *who,
                max(0, entry.audio_ms - entry.silence_ms),
                entry.model,
                head.created,
            )
            for entry in head.unbilled
        ]
        return charges, Billed(tuple(entry.service for entry in head.unbilled))

    def named(self, billed: Mapping[str, Billed]) -> dict[str, object]:
        return {"job": keys.shown(next(iter(billed)))}
