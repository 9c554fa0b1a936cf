"""The edge's metrics for Prometheus, a closed list.

The client library's counters take a lock for every increment, but are rarely scraped. Here the event loop's thread adds
plain numbers, and a scrape turns them into metric families.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from topics.ports.health import Reading

CHUNKS: Final = "earshot_chunks_accepted"
AUDIO: Final = "earshot_audio_bytes_accepted"
JOBS: Final = "earshot_jobs_accepted"
RECORDINGS: Final = "earshot_job_bytes_accepted"
VOICES: Final = "earshot_voices_registered"
RECOGNITIONS: Final = "earshot_recognitions"
FORWARDS: Final = "earshot_requests_forwarded"
REFUSED: Final = "earshot_requests_refused"
KEYS: Final = "earshot_key_failures"
ANSWERED: Final = "earshot_requests"
LATENCY: Final = "earshot_request_seconds"

METRICS: Final = {
    CHUNKS: "Chunks that were answered 200; falls to zero when clients stop or are refused.",
    AUDIO: "Bytes of audio in accepted chunks, after base64.",
    JOBS: "Jobs that were accepted; one that was sent again under its Idempotency-Key counts once.",
    RECORDINGS: "Bytes of recordings in accepted jobs.",
    VOICES: "Voice samples that were registered.",
    RECOGNITIONS: "Recordings in which speakers were looked for, found or not.",
    FORWARDS: "Requests about a session or job that were forwarded to the node or lane that owns it.",
    REFUSED: "Requests other than probes that were refused, by status; 200 where a rule of the speaker interface was "
    "broken; 503 grows when queues are full or a partition has no owner.",
    KEYS: "Requests that need a key and had no valid one, by kind of key (project, organization, admin) and by reason: "
    "missing, invalid, or down without a verdict.",
    ANSWERED: "Requests that were answered, by operation.",
    LATENCY: "Seconds from a request's headers to its answer, or to the beginning of a streamed one, by operation that "
    "was used; reads include the time they waited.",
}

#: Counters without labels.
COUNTERS: Final = (CHUNKS, AUDIO, JOBS, RECORDINGS, VOICES, RECOGNITIONS, FORWARDS)
#: Upper bounds in seconds; the last ones are for reads that wait.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

#: Statuses of refusals that are counted from the start, and kinds of keys with reasons.
STATUSES: Final = ("400", "401", "402", "403", "404", "409", "413", "415", "422", "429", "500", "502", "503")
FAILED: Final = tuple(product(("project", "organization", "admin"), ("missing", "invalid", "down")))

#: Metrics of which a machine has the highest of its lanes, or the lowest, not their sum.
HIGHEST: Final = (
    "earshot_lag_seconds",
    "earshot_alarm_oldest_seconds",
    "earshot_job_lag_seconds",
    "earshot_engine_failing",
    "earshot_database_failing",
    "earshot_broker_away",
    "earshot_failed_lanes",
    "earshot_loop_delay_seconds",
    "earshot_build_info",
    "process_start_time_seconds",
    "process_open_fds",
    "process_max_fds",
)
LOWEST: Final = ("earshot_disk_free_bytes", "earshot_upload_room_bytes")
MERGED: Final[Mapping[str, Callable[[Iterable[float]], float]]] = {
    **dict.fromkeys(HIGHEST, max),
    **dict.fromkeys(LOWEST, min),
}

Readings = Callable[[], Iterable[Reading]]


class Timing:
    """Latencies of one operation."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Meters(Collector):
    """The edge's counts, the readings of other rooms, and the process's figures."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._counts = Counter(dict.fromkeys(COUNTERS, 0))
        self._refused: Counter[tuple[str, ...]] = Counter({(status,): 0 for status in STATUSES})
        self._keys: Counter[tuple[str, ...]] = Counter(dict.fromkeys(FAILED, 0))
        self._timings: dict[str, Timing] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, name: str, by: int = 1) -> None:
        """Increase one of the `COUNTERS`."""
        self._counts[name] += by

    def accepted(self, size: int) -> None:
        """Count an accepted chunk of `size` bytes."""
        self.add(CHUNKS)
        self.add(AUDIO, size)

    def refused(self, status: int) -> None:
        self._refused[(str(status),)] += 1

    def key_failed(self, kind: str, reason: str) -> None:
        """Count a request without a valid key of this kind; `reason` is missing, invalid or down."""
        self._keys[kind, reason] += 1

    def timing(self, operation: str) -> Timing:
        """Return the latencies of an operation, the same object for the same name."""
        return self._timings.setdefault(operation, Timing())

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families when the client library asks for them."""
        for name, count in self._counts.items():
            yield CounterMetricFamily(name, METRICS[name], count)
        yield _counter(REFUSED, ["status"], self._refused)
        yield _counter(KEYS, ["kind", "reason"], self._keys)
        used = {(operation,): sum(timing.counts) for operation, timing in self._timings.items()}
        yield _counter(ANSWERED, ["operation"], Counter(used))
        yield self._latencies()
        yield from _families(self._readings())

    def _latencies(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(LATENCY, METRICS[LATENCY], labels=["operation"])
        bounds = [*map(str, BOUNDS), "+Inf"]
        for operation, timing in self._timings.items():
            if any(timing.counts):  # Sixteen series for each of seventy operations are too many for an idle node.
                counts = list(zip(bounds, accumulate(timing.counts), strict=True))
                family.add_metric([operation], counts, timing.total)
        return family


def merged(expositions: Sequence[bytes]) -> bytes:
    """Return the metrics of a machine from those of its lanes: sums, but the worst of what does not add up."""
    from prometheus_client.parser import text_string_to_metric_families  # Only several lanes need it.

    families: dict[str, Metric] = {}
    samples: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], list[float]]] = {}
    for exposition in expositions:
        for family in text_string_to_metric_families(exposition.decode()):
            families.setdefault(family.name, family)
            of_family = samples.setdefault(family.name, {})
            for sample in family.samples:
                of_family.setdefault((sample.name, tuple(sample.labels.items())), []).append(sample.value)
    for name, family in families.items():
        merge = MERGED.get(name, sum)
        family.samples = [Sample(of, dict(labels), merge(values)) for (of, labels), values in samples[name].items()]
    return generate_latest(_Families(families.values()))


class _Families(CollectorRegistry):
    """A registry of finished families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _families(readings: Iterable[Reading]) -> Iterable[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for name, sentence, value, labels in readings:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = families.setdefault(name, kind(name, sentence, labels=tuple(labels)))
        family.add_metric(tuple(labels.values()), value)
    return families.values()


def _counter(name: str, labels: list[str], counts: Counter[tuple[str, ...]]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, METRICS[name], labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family
