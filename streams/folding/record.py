"""Gets the id of a record's session or job."""

from streams.log import StoredRecord
from topics.errors import RecordError
from topics.keys import is_id


def id_of(record: StoredRecord) -> str:
    """Return the session or job id in the record's key; raise RecordError if the key is not an id."""
    key = (record.key or b"").decode("ascii", "replace")
    if not is_id(key):
        raise RecordError("the record's key is not an id")
    return key
