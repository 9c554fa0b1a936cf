"""Own sounds: every operation and its error messages."""

from tests.audio import WARBLE_S, encoded, warbles
from tests.contract.api import RAW, Api
from tests.contract.jobs import SPEECH, Jobs
from topics.keys import new_id

TAKES = 11
OWN = "/own_sounds/Yard_warbler"


def test_own_sound_is_marked_learnt_and_enabled(api: Api, jobs: Jobs) -> None:
    http, keyed = jobs.http, jobs.keyed

    def refused(method: str, path: str, status: int, said: str, **body: object) -> None:
        answer = http.request(method, path, headers=keyed, json=body or None)
        assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text

    def mark(place: str, start: float, end: float, right: bool = True) -> None:
        answer = http.post(f"{OWN}/{place}", json={"start": start, "end": end, "right": right}, headers=keyed)
        assert answer.status_code == 201, answer.text

    refused("POST", f"{OWN}/learn", 404, "no such sound")
    refused("PATCH", OWN, 404, "no such sound", on=False)
    refused("DELETE", OWN, 404, "no such sound")
    job = jobs.accepted(encoded(warbles(*range(TAKES)), kind="FLAC"))
    jobs.completed(job)
    session = api.create("stream", RAW)
    api.send(session, (32767 * warbles(TAKES)).astype("<i2").tobytes())
    api.seal(session)
    api.follow(session)
    assert api.results(session).json()["state"] == "done"
    for place, noun in ((f"jobs/{job}", "jobs"), (f"sessions/{session}", "sessions")):
        mark(place, 0, 3)
        refused("GET", f"{OWN}/{place}", 409, "has to be learnt first")
        refused("POST", f"/own_sounds/Siren/{place}", 400, "knows a sound Siren already", start=0, end=3)
        refused("POST", f"{OWN}/{noun}/{new_id()}", 404, "Not Found", start=0, end=3)
    refused("PATCH", OWN, 409, "has to be learnt first", on=True)
    refused("POST", f"{OWN}/learn", 400, "2 passages are marked as the sound, and 10 are needed")
    for number in range(1, TAKES):
        mark(f"jobs/{job}", WARBLE_S * number, WARBLE_S * number + 3)
    mark(f"sessions/{session}", 0, 3, right=False)
    learnt = http.post(f"{OWN}/learn", headers=keyed).json()
    assert learnt["figures"].keys() == {"streams", "recordings"}
    assert learnt["figures"]["recordings"]["passages"] == TAKES
    for noun in ("jobs", "sessions"):
        refused("GET", f"{OWN}/{noun}/{new_id()}", 404, "Not Found")
    assert http.get(f"{OWN}/jobs/{job}", headers=keyed).json()["found"]
    assert http.get(f"{OWN}/sessions/{session}", headers=keyed).status_code == 200
    wordless = jobs.accepted(encoded(warbles(1)), SPEECH)
    jobs.completed(wordless)
    refused("GET", f"{OWN}/jobs/{wordless}", 409, "did not request sound events")
    assert http.patch(OWN, json={"on": True}, headers=keyed).json()["on"]
    listed = {sound["name"]: sound for sound in http.get("/own_sounds", headers=keyed).json()["sounds"]}
    first = listed["Yard_warbler"]["marks"][0]["id"]
    assert http.delete(f"{OWN}/marks/{first}", headers=keyed).status_code == 204
    refused("DELETE", f"{OWN}/marks/{first}", 404, "no such mark")
    assert http.delete(OWN, headers=keyed).status_code == 204
