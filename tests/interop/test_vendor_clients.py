"""The vendor's generated client works against this service by its host option alone."""

import pytest

from tests.contract.api import Service
from tests.interop.vendor import VendorClient
from tests.recordings import SIREN

pytestmark = pytest.mark.slow

ALIAS = "/sense/api/v1"
BAD_REQUEST = "BadRequestException 400"
GENERATED = VendorClient("cochl-sense-api", "1.7.11", "operations.py")


@pytest.mark.both_logs
@pytest.mark.parametrize(("prefix", "window", "hop"), [("", 1, 0.5), (ALIAS, 2, 1)], ids=["root", "alias"])
def test_generated_client_supports_every_operation(prefix: str, window: float, hop: float, service: Service) -> None:
    value = GENERATED.call(service.url + prefix, service.key, str(SIREN), "audio/ogg")
    file = value["file"]
    count = int((5 - window) / hop) + 1
    assert (file["created"]["window_size"], file["created"]["window_hop"]) == (window, hop)
    assert [event["start_time"] for event in file["windows"]] == [n * hop for n in range(count)]
    assert [event["end_time"] for event in file["windows"]] == [n * hop + window for n in range(count)]
    assert all("Siren" in {tag["name"] for tag in event["tags"]} for event in file["windows"])
    assert file["pending"] == "pending"
    assert file["states"] == ["readonly"] * len(file["pages"])
    assert sum(page["count"] for page in file["pages"]) == count
    assert all(page["count"] for page in file["pages"]), "an empty last page breaks older samples"
    assert file["some"] == {"state": "done", "more": True, "data": file["windows"][1:3]}
    refusals = [file[name] for name in ("skipped", "closed", "deleted", "forged")]
    assert refusals == ["ConflictException 409", "ForbiddenException 403", "NotFoundException 404", BAD_REQUEST]
    assert value["wrong_key"] == "UnauthorizedException 401"
    assert value["bad_type"] == BAD_REQUEST
    silence = [{"name": "Others", "probability": 0.0}]
    assert [event["tags"] for event in value["predict"]["data"]] == [silence, silence]
    assert (value["predict"]["next"], value["predict"]["again"]) == (2, "ConflictException 409")
