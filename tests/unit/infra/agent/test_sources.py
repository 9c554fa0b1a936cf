"""The file of sources: what it may say, and one sentence for each mistake."""

import re
from pathlib import Path

import pytest

from infra.agent.sources import Sources, read
from infra.errors import Unfit
from tests.conftest import ROOT
from tests.documentation import pages

KEY = {"EARSHOT_PROJECT_KEY": "k" * 30}
BARN = '[[sources]]\nname = "barn"\nurl = "rtsp://10.0.0.5/audio"\n'


def write(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "sources.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def parsed(directory: Path, text: str, mode: int = 0o600) -> Sources:
    return read(write(directory, text, mode), KEY)


def test_everything_that_it_may_say(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret key\n")
    found = parsed(
        tmp_path,
        """
        url = "https://earshot.example.org"
        key_file = "key"
        spool = "kept"
        spool_gigabytes = 0.5
        [defaults]
        labels = { site = "farm", floor = "0" }
        sensitivity = 1
        [[sources]]
        name = "barn"
        url = "rtsp://admin:s%40cret@10.0.0.5:8554/audio"
        labels = { floor = "1" }
        sensitivity = -1
        model = "yamnet"
        [[sources]]
        name = "desk"
        microphone = "plughw:1,0"
        [[sources]]
        name = "recorder"
        folder = "recordings"
        """,
    )
    assert (found.url, found.key, found.spool, found.spool_bytes) == (
        "https://earshot.example.org",
        "secret key",
        tmp_path / "kept",
        500_000_000,
    )
    barn, desk, recorder = found.sources.values()
    assert (barn.labels, barn.sensitivity, barn.model) == ({"site": "farm", "floor": "1"}, -1, "yamnet")
    assert (desk.labels, desk.sensitivity, desk.model) == ({"site": "farm", "floor": "0"}, 1, None)
    assert recorder.folder == str(tmp_path / "recordings")
    assert barn.place == "rtsp://10.0.0.5:8554"
    assert set(found.secrets()) == {"secret key", "s%40cret", "s@cret"}
    assert "s%40cret" not in repr(found)


def test_example_of_the_documentation(tmp_path: Path) -> None:
    (example,) = [block.text for block in pages.read(ROOT / "docs/sources.md").blocks() if block.language == "ini"]
    (tmp_path / "project-key").write_text("secret key")
    assert list(parsed(tmp_path, example).sources) == ["Front door", "Barn", "Desk", "Recorder"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sources = []", "has no sources: add at least one [[sources]]"),
        ("", "no `sources`"),
        (BARN + BARN, "has 2 sources named 'barn': give each its own name"),
        (BARN + "colour = 1", "sources[0]: unknown field `colour`"),
        ("colour = 1\n" + BARN, "unknown field `colour`"),
        ("[[sources]]\nname = 1", "sources[0].name: Expected `str`, got `int`"),
        ("[[sources]]\nurl = 'rtsp://a/b'", "sources[0]: no `name`"),
        ("[[sources]]\nname = 'a'", "source 'a' needs one of microphone, url and folder"),
        (BARN + "folder = 'x'", "source 'barn' needs one of microphone, url and folder"),
        ("[[sources]]\nname = ''\nfolder = 'x'", "the name '' must have 1 to 100 printable characters"),
        ("[[sources]]\nname = 'a'\nurl = 'ftp://a:pw@b'", "url must begin with rtsp://, rtsps://, http://, https://"),
        ("[[sources]]\nname = 'a'\nurl = 'rtsp://'", "and name a host"),
        ("[[sources]]\nname = 'a'\nurl = 'rtsp://a:x/b'", "and name a host"),
        (BARN + "sensitivity = 3", "sensitivity must be from -2 to 2"),
        (BARN + f"labels = {{ a = '{'x' * 5000}' }}", "its labels have more than 4096 bytes"),
        (f"[[sources]]\nname = 'a'\nfolder = 'x'\nlabels = {{ a = '{'x' * 4000}' }}", "more than 3072 bytes"),
        (BARN + "labels = { a = 1 }", "sources[0].labels[...]: Expected `str`, got `int`"),
        ("url = 'earshot'\n" + BARN, "url must be that of the service, such as http://127.0.0.1:8000"),
        ("spool_gigabytes = 0\n" + BARN, "spool_gigabytes must be a number above 0"),
        ("spool_gigabytes = inf\n" + BARN, "spool_gigabytes must be a number above 0"),
        (f"spool_gigabytes = {'9' * 5000}\n" + BARN, "Exceeds the limit"),
        ("a = " + "[" * 3000, "recursion"),
        ("spool = '~nobody-here/spool'\n" + BARN, "'~nobody-here/spool' is no path"),
        ('[[sources]]\nname = "a"\nfolder = "a\\u0000b"', r"'a\x00b' is no path"),
        ('[[sources]]\nname = "a"\nmicrophone = "a\\u0000b"', "the name of the microphone must be printable"),
        ("a = ", "Invalid value (at end of document)"),
        (
            "\n".join(f"[[sources]]\nname = 'a{n}'\nfolder = 'x'" for n in range(1000)),
            "has 1000 sources; an agent takes at most 256",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(Unfit, match=re.escape(sentence)) as error:
        parsed(tmp_path, text)
    assert "\n" not in str(error.value)
    assert "pw" not in str(error.value)


@pytest.mark.parametrize("url", ["rtsp://a:pw@b/c", "rtsp://b/user=a_password=pw_channel=1", "http://b/x?token=pw"])
def test_passwords_are_for_one_user(tmp_path: Path, url: str) -> None:
    text = f'[[sources]]\nname = "a"\nurl = "{url}"\n'
    with pytest.raises(Unfit, match=r"run chmod 600 '?/") as error:
        parsed(tmp_path, text, 0o640)
    assert "pw" not in str(error.value)
    assert parsed(tmp_path, text).sources["a"].url == url
    parsed(tmp_path, BARN, 0o644)


def test_missing_file_and_key(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match=r"sources.toml: No such file"):
        read(tmp_path / "sources.toml", KEY)
    with pytest.raises(Unfit, match="no project key: set key_file"):
        read(write(tmp_path, BARN), {})
    with pytest.raises(Unfit, match=r"EARSHOT_PROJECT_KEY_FILE: .*cannot be read"):
        read(write(tmp_path, "key_file = 'none'\n" + BARN), {})
