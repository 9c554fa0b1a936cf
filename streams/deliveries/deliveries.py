"""The deliveries of a node, put together."""

from collections.abc import Callable

import mode
from faust import App

from streams.deliveries.addresses import Resolver
from streams.deliveries.brokers import Brokers, Sources
from streams.deliveries.checks import check
from streams.deliveries.deliverer import Deliverer, Sender
from streams.deliveries.http import Poster
from streams.deliveries.ntfy import Ntfy
from streams.deliveries.options import DeliveryOptions
from streams.deliveries.ready import CONCURRENCY
from streams.deliveries.webhook import Webhooks
from topics.alarms.alarms import Delivery
from topics.ports.alarms import Destination, Destinations, Outbox, Rules


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
        self._poster = Poster(resolver, CONCURRENCY)
        self._brokers = Brokers(options, resolver, destinations, rules, sources)
        senders: dict[str, Sender] = {
            "webhook": Webhooks(self._poster),
            "ntfy": Ntfy(self._poster),
            "mqtt": self._brokers,
        }
        self.deliverer = Deliverer(app, outbox, destinations, senders, options.retries, now_ms)
        self._brokers.is_back = self.deliverer.ready.is_back

    def check(self, destination: Destination) -> None:
        check(destination, self._resolver)

    async def test(self, destination: Destination) -> Delivery:
        return await self.deliverer.test(destination)

    async def on_started(self) -> None:
        self.add_future(self.deliverer.run())
        self.add_future(self._brokers.run())

    async def on_shutdown(self) -> None:
        await self._brokers.close()
        await self._poster.close()
