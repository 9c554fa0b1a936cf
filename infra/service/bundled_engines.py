"""The engines that come with the service, as its settings want them."""

from collections.abc import Collection

from infra.engine_settings import EngineName
from infra.engines import CHAT_MODEL, SPEAKER_MODEL, SPEECH_MODEL, SPEECH_MODELS
from infra.engines.child import EngineServer
from infra.engines.speech.speech_models import SpeechSettings
from infra.errors import WrongSetting, variable
from infra.settings import Settings


def bundled_engines(settings: Settings) -> EngineServer:
    """Return the process of the bundled engines, not started yet.

    Raises:
        OSError: there is no free port for it.
        WrongSetting: it lacks a model.
    """
    _check_bundled_models(settings)
    directory = settings.data / "engines"
    return EngineServer(settings.log_level, settings.log_format, directory, speech_settings(settings))


def speech_settings(settings: Settings) -> SpeechSettings:
    """Return the settings of the bundled speech engine."""
    model = (settings.speech_model if settings.speech_url is None else None) or SPEECH_MODEL
    return SpeechSettings(model, settings.speech_threads, settings.speech_batch, settings.speech_idle_seconds)


def _check_bundled_models(settings: Settings) -> None:
    """Check that the bundled engine has the models that the settings ask of it.

    Raises:
        WrongSetting: it lacks one.
    """
    bundled: dict[EngineName, Collection[str]] = {
        "speech": SPEECH_MODELS,
        "caption": [CHAT_MODEL],
        "speaker": [SPEAKER_MODEL],
    }
    for name, models in bundled.items():
        chosen = settings.engine(name)
        if chosen.url is None and chosen.model is not None and chosen.model not in models:
            other = variable(f"{name}_url")
            must = "must be one of" if len(models) > 1 else "must be"
            raise WrongSetting(f"{name}_model", f"{must} {', '.join(models)}, unless {other} names another engine")
