"""The deliveries of a node, put together."""

from collections.abc import Callable
from typing import Final

import mode
from faust import App

from streams.deliveries.addresses import Resolver
from streams.deliveries.brokers import Brokers, Sources
from streams.deliveries.checks import check
from streams.deliveries.deliverer import Deliverer, Sender, attempt
from streams.deliveries.http import Poster
from streams.deliveries.ntfy import Ntfy
from streams.deliveries.options import DeliveryOptions
from streams.deliveries.ready import CONCURRENCY
from streams.deliveries.webhook import Webhooks
from topics.alarms.alarms import Alarm, Delivery
from topics.ports.alarms import Destination, Destinations, Outbox, Rules

#: Test messages at a time, besides those to brokers.
TESTS: Final = 8


class Deliveries(mode.Service):  # type: ignore[misc]
    """Looks for alarms that are due, and keeps the connections that deliver them; the agent sends them.

    Implements `topics.ports.alarms.TestDelivery`. Loop only.
    """

    mundane_level = "debug"

    def __init__(
        self,
        app: App,
        options: DeliveryOptions,
        outbox: Outbox,
        destinations: Destinations,
        rules: Rules,
        sources: Sources,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is the time of the log."""
        super().__init__()
        self._resolver = resolver = Resolver(options.networks)
        self._now_ms = now_ms
        self._brokers = Brokers(options, resolver, destinations, rules, sources)
        # Whoever sends test messages to a receiver that hangs takes no connection from alarms.
        self._posters = Poster(resolver, CONCURRENCY), Poster(resolver, TESTS)
        senders, self._tests = map(self._senders, self._posters)
        self.deliverer = Deliverer(app, outbox, destinations, senders, options.retries, now_ms)
        self._brokers.is_back = self.deliverer.ready.is_back

    def _senders(self, poster: Poster) -> dict[str, Sender]:
        return {"webhook": Webhooks(poster), "ntfy": Ntfy(poster), "mqtt": self._brokers}

    def check(self, destination: Destination) -> None:
        check(destination, self._resolver)

    async def test(self, destination: Destination) -> Delivery:
        now_ms = self._now_ms()
        outcome = await attempt(self._tests, destination, example(destination.project, now_ms))
        what = (1, now_ms, outcome.status, outcome.error)
        return Delivery(destination.id, "delivered" if outcome.error is None else "failed", *what)

    async def on_started(self) -> None:
        self.add_future(self.deliverer.run())
        self.add_future(self._brokers.run())

    async def on_shutdown(self) -> None:
        await self._brokers.close()
        for poster in self._posters:
            await poster.close()


def example(project: str, now_ms: int) -> Alarm:
    """Return the alarm of a test message."""
    return Alarm(
        session=f"test{now_ms:020}",
        sequence=0,
        project=project,
        rule="test",
        rule_name="test",
        source=None,
        labels={},
        window=0,
        what="test",
        begins_at=now_ms,
        ends_at=now_ms,
        told=False,
        start_ms=0,
        end_ms=0,
        made_at=now_ms,
    )
