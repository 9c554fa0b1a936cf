"""Hypothesis strategies for every record."""

from hypothesis import strategies as st

from topics.jobs.options import Options, Service
from topics.jobs.records import (
    Accepted,
    Billed,
    Finished,
    Overdue,
    Part,
    Portion,
    Removed,
    Source,
    Started,
)
from topics.records import Parked
from topics.sessions.records import Chunk, Cursor, Deleted, Expired, Failed, Metered, Opened, Scored, Sealed

text = st.text(max_size=12)
count = st.integers(0, 2**62)
short = st.binary(max_size=40)
sensitivity = st.integers(-2, 2)

opened = st.builds(
    Opened,
    text,
    st.sampled_from(["stream", "file"]),
    text,
    text,
    count,
    count,
    st.none() | count,
    sensitivity,
    st.dictionaries(text, sensitivity, max_size=3),
    st.dictionaries(text, text, max_size=3),
    st.none() | text,
    st.none() | st.floats(allow_nan=False),
)
chunk = st.builds(Chunk, text, st.none() | count, short, st.binary(max_size=16), st.booleans())
commands = st.one_of(
    opened, chunk, st.builds(Sealed, text), st.builds(Deleted, text), st.builds(Expired, text, count, count)
)
cursors = st.builds(Cursor, count, count, count, count)
results = st.one_of(
    st.builds(Scored, count, text, short, cursors, count, st.booleans()),
    st.builds(Failed, text),
    st.builds(Metered, count, st.booleans()),
)
parked = st.builds(Parked, text, count, count, text, short, short)

services = st.sampled_from(Service)
options = st.builds(Options, *[st.booleans()] * 6, st.none() | st.booleans(), st.none() | text, text, text)
sources = st.builds(Source, text, text, count, count, count, text, text)
job_commands = st.one_of(
    st.builds(Part, text, text, count, short),
    st.builds(Accepted, text, text, count, text, text, options, sources, text, short),
    st.builds(Removed, text),
    st.builds(Overdue, text, count, count),
)
share = st.floats(0, 1)
job_results = st.one_of(
    st.builds(Started, services, text),
    st.builds(Portion, services, text, count, short, share),
    st.builds(Finished, services, text, count, st.none() | text, count, text, st.lists(text, max_size=2).map(tuple)),
    st.builds(Billed, st.lists(services, max_size=3).map(tuple)),
)
