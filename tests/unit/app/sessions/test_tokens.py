"""Page tokens: accepted as issued, for their own session, or rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sessions.tokens import PageTokens
from topics.errors import BadRequest

SESSION, OTHER = "a" * 24, "b" * 24
TOKENS = PageTokens(b"s" * 32)


@given(offset=st.integers(0, 2**63), count=st.integers(1, 1024))
def test_token_round_trip(offset: int, count: int) -> None:
    token = TOKENS.issue(SESSION, offset, count)
    assert TOKENS.read(SESSION, token) == (offset, count)
    assert token.replace("-", "").replace("_", "").isalnum(), "a token needs no quoting in a URL"


@pytest.mark.parametrize("reader", [(TOKENS, OTHER), (PageTokens(b"t" * 32), SESSION)])
def test_token_is_bound_to_session_and_deployment(reader: tuple[PageTokens, str]) -> None:
    tokens, session = reader
    with pytest.raises(BadRequest, match="next_token"):
        tokens.read(session, TOKENS.issue(SESSION, 5, 10))


@pytest.mark.parametrize("secret", [b"", b"x" * 15, b"x" * 65])
def test_secret_of_wrong_length_is_rejected(secret: bytes) -> None:
    with pytest.raises(ValueError, match="16 to 64"):
        PageTokens(secret)
