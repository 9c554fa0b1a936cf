"""The id of the session or job that a record is of."""

from streams.log import StoredRecord
from topics.errors import RecordError
from topics.keys import is_id


def id_of(record: StoredRecord) -> str:
    """Return the id of the session or job that is the record's key; raise RecordError if that is not an id."""
    key = (record.key or b"").decode("ascii", "replace")
    if not is_id(key):
        raise RecordError("the record's key is not an id")
    return key
