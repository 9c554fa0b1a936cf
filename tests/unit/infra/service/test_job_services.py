"""The addresses of the engines that jobs use."""

from pathlib import Path
from unittest.mock import AsyncMock

from infra.engines.speech.speech_models import TOGETHER
from infra.service.jobs import JobServices
from infra.settings import Settings


async def test_bundled_speech_engine_has_the_time_of_all_pieces_that_it_decodes_together(tmp_path: Path) -> None:
    async def times(**settings: str) -> set[float]:
        made = JobServices(Settings(data=tmp_path, **settings), *(AsyncMock() for _ in range(3)))  # type: ignore[arg-type]
        await made.stop()
        return {engine.address.timeout_s for engine in made.engines if engine.name == "speech"}

    assert await times(speech_timeout="7", speech_concurrency="2") == {14}
    assert await times(speech_timeout="7", speech_concurrency="99") == {7 * TOGETHER}
    assert await times(speech_timeout="7", speech_url="http://127.0.0.1:9/v1/audio/transcriptions") == {7}
