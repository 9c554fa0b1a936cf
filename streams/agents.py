"""All agents of a node.

A node has one Faust app. It is never started and has no broker, topic or table: the log, the folds, the tables and
their owners are ours (`streams/node`). Only its agents run. Each takes work from a channel of ready work
(`streams/channel.py`); the rows have the details.

| agent | takes | does |
| --- | --- | --- |
| `analyse_sessions` | ticks: sessions with audio, a worker's share | gets the audio, scores it, writes the windows |
| `run_services` | services of jobs that have a place | runs each to its end |
| `deliver_alarms` | alarms that are due | sends each to a destination, and notes what came of it |
| `bill_sessions`, `bill_jobs` | sessions or jobs with unbilled audio | writes lines to the ledger |
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from faust import App
from faust.transport.base import Transport
from faust.types import AgentT, ChannelT, StreamT
from mode.supervisors import CrashingSupervisor

from streams.deliveries.deliverer import Deliverer
from streams.deliveries.ready import Pending
from streams.folding.billing import Biller
from streams.jobs.service_runner import PendingService, Runner
from streams.sessions.analyser import Analyser


class _NoConsumer:
    """Stands in for the consumer that streams and agents expect; there are no messages to acknowledge. Loop only."""

    unacked: Final[set[Any]] = set()
    _unacked_messages = unacked


class NodeApp(App):  # type: ignore[misc]
    """A Faust app that is never started. A node runs its `agents`; a crash of one crashes the node. Loop only."""

    def __init__(self) -> None:
        super().__init__(
            "earshot", broker="kafka://", store="memory://", web_enabled=False, agent_supervisor=CrashingSupervisor
        )
        # Without these, Faust would load its Kafka client.
        self.transport = Transport([], self)
        self.consumer = _NoConsumer()

    def agent(
        self, channel: ChannelT[Any], *, name: str, concurrency: int = 1
    ) -> Callable[[Callable[[StreamT[Any]], Awaitable[None]]], AgentT[Any]]:
        """Return a decorator that makes an agent.

        Faust's own decorator also looks up where the agent is defined. For that it reads the file of every loaded
        module, which makes lazy modules load everything.
        """

        def make(function: Callable[[StreamT[Any]], Awaitable[None]]) -> AgentT[Any]:
            self.agents[name] = agent = self.conf.Agent(
                function, app=self, name=name, channel=channel, concurrency=concurrency
            )
            return agent

        return make


def analyse_sessions(app: NodeApp, analyser: Analyser) -> AgentT[Any]:
    @app.agent(analyser.ready, name="analyse_sessions", concurrency=analyser.actors)
    async def analyse_sessions(ticks: StreamT[list[str]]) -> None:
        async for sessions in ticks:
            audio = await analyser.chunks_of(sessions)  # From memory, or from the log.
            windows = await analyser.score(audio)  # Decode, resample, window and infer, in a worker.
            await analyser.write(windows)  # The rows of the sessions; wakes their readers.

    return analyse_sessions


def run_services(app: NodeApp, runner: Runner) -> AgentT[Any]:
    @app.agent(runner.ready, name="run_services", concurrency=runner.ready.actors)
    async def run_services(services: StreamT[PendingService]) -> None:
        async for pending in services:
            await runner.run(pending)

    return run_services


def bill(app: NodeApp, name: str, biller: Biller[Any, Any]) -> AgentT[Any]:
    @app.agent(biller.ready, name=name)
    async def bill(unbilled: StreamT[list[str]]) -> None:
        async for ids in unbilled:
            await biller.bill(ids)

    return bill


def deliver_alarms(app: NodeApp, deliverer: Deliverer) -> AgentT[Any]:
    @app.agent(deliverer.ready, name="deliver_alarms", concurrency=deliverer.ready.actors)
    async def deliver_alarms(deliveries: StreamT[Pending]) -> None:
        async for pending in deliveries:
            await deliverer.deliver(pending)

    return deliver_alarms
