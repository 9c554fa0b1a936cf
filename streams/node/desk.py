"""Jobs as the edge sees them."""

from __future__ import annotations

from collections.abc import Callable

from streams.folding.followers import Follower, Followers
from streams.node.outbox import Outbox
from streams.node.owned import Owned
from topics.catalog import JOB_COMMANDS
from topics.folding import Verdict
from topics.jobs.options import Service
from topics.jobs.records import JobCommand, Part
from topics.ports.jobs import JobView


class Desk:
    """Implements `topics.ports.jobs.Jobs`."""

    def __init__(
        self,
        owned: Owned,
        outbox: Outbox,
        followers: Followers,
        owner: Callable[[str], str | None],
        model: Callable[[], str],
    ) -> None:
        self._owned = owned
        self._outbox = outbox
        self._followers = followers
        self._owner = owner
        self._model = model

    def new_id(self) -> str:
        """See `topics.ports.jobs.Jobs.new_id`."""
        return self._owned.new_id()

    def owner(self, job: str) -> str | None:
        """See `topics.ports.jobs.Jobs.owner`."""
        return self._owner(job)

    async def upload(self, job: str, part: Part) -> None:
        """See `topics.ports.jobs.Jobs.upload`; parts are appended in the order in which the calls begin."""
        self._owned.serving_job(job)
        await self._outbox.send(JOB_COMMANDS, job, part)

    async def submit(self, job: str, command: JobCommand) -> Verdict:
        """See `topics.ports.jobs.Jobs.submit`."""
        self._owned.serving_job(job)
        return await self._outbox.submit(JOB_COMMANDS, job, command)

    def view(self, job: str) -> JobView | None:
        """See `topics.ports.jobs.Jobs.view`."""
        store = self._owned.serving_job(job)
        head = store.head(job)
        accepted = store.accepted(job) if head is not None and head.visible else None
        return None if head is None or accepted is None else JobView(accepted, head)

    def portion(self, job: str, service: Service, number: int) -> bytes | None:
        """See `topics.ports.jobs.Jobs.portion`."""
        return self._owned.serving_job(job).portion(job, service, number)

    def follow(self, job: str) -> Follower:
        """See `topics.ports.jobs.Jobs.follow`."""
        return self._followers.follow(job)

    def model(self) -> str:
        """See `topics.ports.jobs.Jobs.model`."""
        return self._model()
