"""The stack's process that analyses: `python -m benchmarks.stack.worker BOOTSTRAP PARTITIONS MODEL DIRECTORY`.

A dataflow of bytewax with recovery: audio topic, a state for each session with our front end and model, result topic.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from app.scores import TagRenderer
from benchmarks import audio
from benchmarks.stack.records import AUDIO, RESULTS, encode
from infra import models
from streams.audio.analysis import Analysis
from streams.audio.decode import decode_chunk
from streams.audio.warm import warm
from streams.models.sound_engine import OnnxSoundEngine
from topics.geometry import SESSIONS
from topics.media import parse

#: Records that go through the dataflow together.
BATCH: Final = 256
EPOCH: Final = timedelta(seconds=10)
#: The only part of source and sink: one consumer and one producer serve all partitions.
ALL: Final = "all"
SAMPLE_BYTES: Final = 2
#: Chunks of a session that are kept before those that are needed no more are dropped.
KEPT_CHUNKS: Final = 8
LINGER_MS: Final = 2


#: Session and partition of a record, and its value: a chunk, or a record of windows.
Record = tuple[bytes, int, bytes]
#: Of a session: its next window, the position of the first sample that it needs, and the audio from there.
SessionSnapshot = tuple[int, int, bytes]


class AudioPartition(StatefulSourcePartition[tuple[str, Record], dict[int, int]]):
    """The consumer of the audio topic; its state is the next offset of each partition."""

    def __init__(self, bootstrap: str, offsets: dict[int, int]) -> None:
        self._next = dict(offsets)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stack", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(AUDIO, number, offset) for number, offset in offsets.items()])

    def next_batch(self) -> list[tuple[str, Record]]:
        """Return the chunks that have come, by session."""
        return [self._item(message) for message in self._consumer.consume(BATCH, 0)]

    def _item(self, message: Message) -> tuple[str, Record]:
        if (error := message.error()) is not None:
            raise KafkaException(error)
        # All of them are optional only in a message that is an error.
        partition, session = cast(int, message.partition()), cast(bytes, message.key())
        self._next[partition] = cast(int, message.offset()) + 1
        return session.decode("ascii"), (session, partition, cast(bytes, message.value()))

    def snapshot(self) -> dict[int, int]:
        """Return where to go on."""
        return dict(self._next)


class AudioSource(FixedPartitionedSource[tuple[str, Record], dict[int, int]]):
    """The audio topic."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._partitions = partitions

    def list_parts(self) -> list[str]:
        """Return the only part."""
        return [ALL]

    def build_part(self, step_id: str, for_part: str, resume_state: dict[int, int] | None) -> AudioPartition:
        """Begin at the beginning, or where the last run was."""
        return AudioPartition(self._bootstrap, resume_state or dict.fromkeys(range(self._partitions), OFFSET_BEGINNING))


class SessionLogic(StatefulBatchLogic[Record, Record, SessionSnapshot]):
    """One session: chunks in, a record of the windows that they complete out."""

    media = parse(audio.CONTENT_TYPE)

    def __init__(self, engine: OnnxSoundEngine, renderer: TagRenderer, state: SessionSnapshot | None) -> None:
        first, at, recent = state or (0, 0, b"")
        self._renderer = renderer
        self._recent = [recent]
        self._analysis = Analysis(engine, SESSIONS, audio.RATE, at=at, first_window=first)
        if recent:
            self._analysis.feed(decode_chunk(recent, self.media).samples)

    def on_batch(self, values: list[Record]) -> tuple[list[Record], bool]:
        """Analyse the next chunks, together."""
        session, partition, _ = values[0]
        chunks = [chunk for _, _, chunk in values]
        self._recent += chunks
        if len(self._recent) > KEPT_CHUNKS:
            self._trim()
        audio = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        found = self._analysis.feed(decode_chunk(audio, self.media).samples)
        if not found.count:
            return [], self.RETAIN
        record = encode(found.first, events(found.first, self._renderer.tags(found.packed)))
        return [(session, partition, record)], self.RETAIN

    def snapshot(self) -> SessionSnapshot:
        """Return what a later run needs."""
        self._trim()
        return self._analysis.next_window, self._analysis.needed_from, self._recent[0]

    def _trim(self) -> None:
        """Drop the audio that no window to come needs."""
        needed = self._analysis.position - self._analysis.needed_from
        recent = b"".join(self._recent)
        self._recent = [recent[len(recent) - SAMPLE_BYTES * needed :]]


class ResultPartition(StatefulSinkPartition[Record, None]):
    """The producer of the result topic; an epoch ends when all its results are durable."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def write_batch(self, values: list[Record]) -> None:
        """Send results."""
        for session, partition, record in values:
            self._producer.produce(RESULTS, record, session, partition, on_delivery=check)
        self._producer.poll(0)

    def snapshot(self) -> None:
        """Wait for what was sent."""
        self._producer.flush()


class ResultSink(FixedPartitionedSink[Record, None]):
    """The result topic."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def list_parts(self) -> list[str]:
        """Return the only part."""
        return [ALL]

    def part_fn(self, item_key: str) -> int:
        """Return the number of the only part."""
        return 0

    def build_part(self, step_id: str, for_part: str, resume_state: None) -> ResultPartition:
        """Return the part, which has no state."""
        return ResultPartition(self._producer)


def check(error: KafkaError | None, message: Message) -> None:
    """Stop the flow at a record that could not be sent."""
    if error is not None:
        raise KafkaException(error)


def events(first: int, windows: list[bytes]) -> list[bytes]:
    """Return the JSON of consecutive windows, given the tags of each."""
    bounds = (SESSIONS.bounds(number) for number in range(first, first + len(windows)))
    return [
        b'{"start_time":%s,"end_time":%s,"tags":[%s]}' % (repr(start).encode(), repr(end).encode(), tags)
        for (start, end), tags in zip(bounds, windows, strict=True)
    ]


def flow(bootstrap: str, partitions: int, engine: OnnxSoundEngine, producer: Producer) -> Dataflow:
    """Return the dataflow."""
    renderer = TagRenderer([tag.name for tag in engine.manifest.tags], 0, {})
    dataflow = Dataflow("stack")
    chunks = op.input("audio", dataflow, AudioSource(bootstrap, partitions))
    results = op.stateful_batch("analysis", chunks, lambda state: SessionLogic(engine, renderer, state))
    op.output("results", results, ResultSink(producer))
    return dataflow


def end_with_parent() -> None:
    """End this process at the end of standard input."""
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Analyse until ended."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    bootstrap, partitions, model, directory = sys.argv[1:]
    engine = OnnxSoundEngine(models.directory(model))
    warm(engine)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "delivery.report.only.error": True,
        }
    )
    recovery = Path(directory)
    if not recovery.exists():
        recovery.mkdir(parents=True)
        init_db_dir(recovery, 1)
    # A record without a key tells the ingress that this is ready.
    producer.produce(RESULTS, b"", partition=0)
    producer.flush()
    dataflow = flow(bootstrap, int(partitions), engine, producer)
    gc.freeze()
    cli_main(dataflow, recovery_config=RecoveryConfig(recovery), epoch_interval=EPOCH)


if __name__ == "__main__":
    main()
