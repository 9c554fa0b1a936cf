"""Waits for a producer's delivery reports: librdkafka has no descriptor that an event loop could watch."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from confluent_kafka import KafkaException, Producer

from streams.cores import LOOP_SLICE, wake_promptly

T = TypeVar("T")

#: Seconds until the thread of a producer that is no longer used ends.
POLL_SECONDS: Final = 0.5


class DeliveryReports(Generic[T]):
    """Passes what a producer reports to the loop: what came together, in one call.

    Loop only, except `note` and `_run`.
    """

    def __init__(self, producer: Producer, arrived: Callable[[list[T]], None], failed: Callable[[str], None]) -> None:
        """Call `arrived` in this loop with what reports `note`, and `failed` once if the producer has failed."""
        self.producer = producer
        self._arrived = arrived
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._noted: list[T] = []
        self._is_used = True
        threading.Thread(target=self._run, name="kafka-reports", daemon=True).start()

    def note(self, report: T) -> None:
        """Pass a report to the loop. For callbacks of the producer, in its thread."""
        self._noted.append(report)

    def leave(self) -> None:
        """Use the producer no longer: drop what it has not sent."""
        self._is_used = False
        self.producer.purge(blocking=False)

    def _run(self) -> None:
        wake_promptly(LOOP_SLICE)
        with suppress(RuntimeError):  # The loop is closed.
            while self._is_used:
                try:
                    self.producer.poll(POLL_SECONDS)
                except KafkaException as error:
                    if self._is_used:  # Dropping what is in flight is a fault for librdkafka.
                        self._loop.call_soon_threadsafe(self._failed, error.args[0].str())
                    return
                if self._noted:
                    noted, self._noted = self._noted, []
                    self._loop.call_soon_threadsafe(self._arrived, noted)
