"""The operations on recordings that are kept, as the documents describe them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from app.http.descriptions import Answer, Description, Parameter, fault_of, integer_query, json_answer
from app.http.operation import Handler
from app.http.ranges import RangeNotSatisfiable
from app.identity.keys import LINK_ENDED
from app.jobs import audio, pictures
from app.jobs.answers import AudioLink, Waveform
from app.jobs.errors import job_not_found
from app.jobs.job_descriptions import ID, JOB
from app.jobs.pictures import COLUMNS, POINTS
from app.shared_descriptions import BROKEN, PROJECT_KEY
from topics.errors import AudioError, NotFound, Unauthorized, Unavailable
from topics.ports.directory import AUDIO_LINK_SECONDS
from topics.ports.pictures import BANDS, RATE

LINK: Final = AudioLink(
    f"/api/v1/jobs/{ID}/audio?token=0123456789abcdefghijABCDEFGHIJKL", datetime(2026, 11, 22, 7, 49, tzinfo=UTC)
)
PEAKS: Final = Waveform(2, 1, RATE, 56_160, 8, 2, [-31, 29, -114, 120])
HEARD_FAULTS: Final = (job_not_found(), NotFound(audio.NOT_KEPT), *BROKEN)
LOST: Final = AudioError("the audio was damaged in the log")
PICTURE_FAULTS: Final = (
    fault_of(pictures.read_stretch, {"start": "-1"}),
    fault_of(pictures.read_stretch, {"start": "2", "end": "1"}),
    *HEARD_FAULTS,
    LOST,
    Unavailable("the picture of the recording is being drawn"),
)
STRETCH: Final = tuple(
    Parameter(name, "query", Annotated[float, msgspec.Meta(ge=0, le=pictures.MOST_SECONDS)], text)
    for name, text in (("start", "Seconds, by default 0."), ("end", "Seconds, by default the recording's end."))
)
DRAWN: Final = (
    "The first request draws it, in a few seconds for an hour of audio. Until then the answer is 503: retry after "
    "`Retry-After`."
)
LENGTH: Final = {
    "Earshot-Seconds": "Length of the recording in seconds; if it breaks off, up to there.",
    "Cache-Control": "Do not cache.",
}
AUDIO: Final = {
    "Accept-Ranges": "`bytes`.",
    "Content-Disposition": "Its name, to save it as.",
    "ETag": "For `If-Range`.",
    "Cache-Control": "Do not cache.",
}
RANGE: Final = {"Content-Range": "Which bytes of how many."}

OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    audio.link_audio: Description(
        summary="Make a link to a recording",
        text="For players, which cannot send a key; never put a key in a URL. The link opens only this recording, for "
        f"{AUDIO_LINK_SECONDS} s. The project or operator sets how long audio is kept.",
        key=PROJECT_KEY,
        parameters=(JOB,),
        answers=json_answer("The link.", door=LINK, headers={"Cache-Control": "Do not cache."}),
        faults=HEARD_FAULTS,
    ),
    audio.read_audio: Description(
        summary="Read a recording",
        text="The original bytes, or one range of them; a request for several ranges gets all of them. Needs the key, "
        "or the `token` of a link. The answer is 404 once the recording is deleted.",
        key=PROJECT_KEY,
        parameters=(
            JOB,
            Parameter("token", "query", str, "The token of a link, in place of the key."),
            Parameter("Range", "header", str, "The requested bytes.", example="bytes=0-1023"),
            Parameter(
                "If-Range",
                "header",
                str,
                "The `ETag` of an earlier answer; if it differs, all of the recording is sent.",
            ),
        ),
        answers={
            200: tuple(Answer("The recording.", (bytes,), {}, media=kind, headers=AUDIO) for kind in audio.MEDIA),
            206: tuple(Answer("The range.", (bytes,), {}, media=kind, headers=AUDIO | RANGE) for kind in audio.MEDIA),
        },
        faults=(
            *HEARD_FAULTS,
            LOST,
            Unauthorized(LINK_ENDED),
            RangeNotSatisfiable(27_029),
            Unavailable(audio.CROWDED, 5),
        ),
    ),
    pictures.read_waveform: Description(
        summary="Read the waveform of a recording",
        text=f"Peaks of the recording or a part of it, in the data format of BBC audiowaveform. {DRAWN}",
        key=PROJECT_KEY,
        parameters=(JOB, *STRETCH, integer_query(POINTS)),
        answers=json_answer("The peaks.", two=PEAKS, headers=LENGTH),
        faults=(fault_of(POINTS.read, {POINTS.name: "0"}), *PICTURE_FAULTS),
    ),
    pictures.read_spectrogram: Description(
        summary="Read the spectrogram of a recording",
        text=f"A picture of {BANDS} rows, one for each frequency band up to {RATE // 2} Hz, evenly spaced on the mel "
        "scale, the highest on top. Black is -100 dB, white is full scale; a pixel shows the loudest value that it "
        f"covers. It is black after the end of the recording. {DRAWN}",
        key=PROJECT_KEY,
        parameters=(JOB, *STRETCH, integer_query(COLUMNS)),
        answers={200: Answer("The picture.", (bytes,), {}, media="image/png", headers=LENGTH)},
        faults=(fault_of(COLUMNS.read, {COLUMNS.name: "0"}), *PICTURE_FAULTS),
    ),
}
