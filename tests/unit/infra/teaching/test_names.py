"""Names of taught sounds: their form, and names that the model knows."""

import pytest

from infra.teaching.names import check_name
from topics.errors import BadRequest


@pytest.mark.parametrize("name", ["rain", "Ra in", "Rain!", "", "Ärger", "Rain\n", "R" * 41])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(BadRequest, match="is not a name of a sound"):
        check_name(name, [], "")


def test_known_name_is_rejected_with_advice() -> None:
    with pytest.raises(BadRequest, match=r"^the model knows a sound Rain already: choose another$"):
        check_name("Rain", ["Siren", "Rain"], "choose another")
    check_name("R" + "a" * 39, ["Rain"], "")
