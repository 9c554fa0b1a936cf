"""Turns packed scores into the tags that windows report, for sessions and jobs."""

import re
from collections.abc import Collection, Iterable, Sequence
from heapq import nsmallest
from operator import sub
from typing import Final

import msgspec

from topics.errors import BadRequest
from topics.scores import probability, threshold

#: The tag of a window without any; clients skip that name.
OTHERS: Final = b'{"name":"Others","probability":0.0}'

#: A reported tag: threshold minus score, as stored, at most 0; and the number of the tag. The most probable tag sorts
#: first.
ReportedTag = tuple[int, int]


def check_tags(field: str, names: Collection[str], official: Iterable[str]) -> None:
    """Check the tags that a field names.

    Raises:
        BadRequest: a tag is unknown.
    """
    if names and (unknown := sorted(set(names) - set(official))):
        raise BadRequest(f"{field}: unknown tag {unknown[0][:64]!r}")


class TagRenderer:
    """Renders the scores of one model at one setting of the sensitivities."""

    def __init__(self, tags: Sequence[str], default: int, by_tag: dict[str, int]) -> None:
        self.names = tags
        self.width = len(tags)
        self._names = [msgspec.json.encode(tag) for tag in tags]
        self._sensitivities = [by_tag.get(tag, default) for tag in tags]
        self._thresholds = [threshold(sensitivity) for sensitivity in self._sensitivities]
        # A window reports few tags; the search for bytes of at least the lowest threshold runs in C.
        self._candidates = re.compile(b"[\\x%02x-\\xff]" % min(self._thresholds, default=255))
        self._fragments: dict[ReportedTag, bytes] = {}

    def reported_tags(self, scores: bytes) -> list[list[ReportedTag]]:
        """Return the reported tags of each window of packed scores, most probable first."""
        windows: list[list[ReportedTag]] = [[] for _ in range(len(scores) // self.width)]
        for match in self._candidates.finditer(scores):
            place = match.start()
            window, tag = divmod(place, self.width)
            missing = self._thresholds[tag] - scores[place]
            if missing <= 0:
                windows[window].append((missing, tag))
        for tags in windows:
            tags.sort()
        return windows

    def tags(self, scores: bytes) -> list[bytes]:
        """Return the tags of each window of packed scores as JSON objects, most probable first."""
        return [self._tags_json(window) if window else OTHERS for window in self.reported_tags(scores)]

    def top(self, scores: bytes, count: int) -> bytes:
        """Return the most probable tags of one window, reported or not, as JSON objects with commas between."""
        ranked = nsmallest(count, zip(map(sub, self._thresholds, scores), range(self.width), strict=True))
        return self._tags_json(ranked)

    def name_and_probability(self, reported_tag: ReportedTag) -> tuple[bytes, bytes]:
        """Return the name and the probability of a tag as JSON."""
        return self._names[reported_tag[1]], repr(self.probability_of(reported_tag)).encode("ascii")

    def probability_of(self, reported_tag: ReportedTag) -> float:
        missing, tag = reported_tag
        return probability(self._thresholds[tag] - missing, self._sensitivities[tag])

    def _tags_json(self, tags: list[ReportedTag]) -> bytes:
        return b",".join([self._fragments.get(tag) or self._fragment(tag) for tag in tags])

    def _fragment(self, reported_tag: ReportedTag) -> bytes:
        fragment = b'{"name":%s,"probability":%s}' % self.name_and_probability(reported_tag)
        self._fragments[reported_tag] = fragment
        return fragment
