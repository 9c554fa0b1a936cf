"""The documentation checks find exactly the planted faults."""

from pathlib import Path

import pytest

from tests.documentation.checks import faults
from tests.documentation.commands import commands
from tests.documentation.pages import Page


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a page, a Makefile and one code file."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# One day, `two` hours\n\n## Same\n\n## Same\n")
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "keys.py").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_one() -> None:\n    pass\n")
    (tmp_path / "Makefile").write_text(".PHONY: run\n\nrun kafka soak: .venv/.installed ## Start\n\t@true\nUV := uv\n")
    return tmp_path


def found(root: Path, text: str, name: str = "docs/page.md") -> list[str]:
    return [fault.removeprefix(f"{name}:") for fault in faults(Page(root / name, text), root)]


ONE = "`tests/test_one.py::test_one`"

SOUND = """
# A page

[elsewhere](https://example.org/none), [there](other.md), [and there](other.md#one-day-two-hours),
[twice](other.md#same-1), [here](#a-page), [code](../topics/keys.py), `topics/keys.py`, `topics/*.py`, `docs/`,
`earshot models use`, `earshot usage --recount`, `EARSHOT_PORT`, `EARSHOT_URL`,
`EARSHOT_TEST_CHUNKS`, `make run`, `earshot ...`, `python -m tests.documentation`.

```sh
export EARSHOT_PORT=1 && make kafka NODES=3     # a comment with `earshot nothing`
(printf '{"data":"'; base64 docs/other.md) | curl -s -d @- -F audio=@topics/keys.py $EARSHOT_URL
echo "X-Api-Key: $EARSHOT_PROJECT_KEY" | curl -s -H @- $EARSHOT_URL
ID=$(earshot org create Farm --json | cut -d'"' -f4)
sudo -u earshot EARSHOT_DATA=/var/lib .venv/bin/earshot config \\
  --json
arecord | earshot listen -
python - <<'END' | earshot speakers list
earshot is no command here, and "this is not closed
END
```

```python
from earshot_client import Client
```

```json
{"a": 1}
```

1. One.
2. Two, `make soak NAMES="kill fencing"`.

| promise | test | more |
| --- | --- | --- |
| 1, 2 | `tests/test_one.py::test_one` | - |
"""


def test_correct_page_has_no_faults(root: Path) -> None:
    assert found(root, SOUND) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](none.md)", "1: the link none.md leads nowhere"),
        ("![a](none.png)", "1: the link none.png leads nowhere"),
        ("\n\n[a](other.md#none)", "3: the link other.md#none names no heading there"),
        ("[a](#none)", "1: the link #none names no heading there"),
        ("[a](../topics/keys.py#L3)", "1: the link ../topics/keys.py#L3 names no heading there"),
        ("[a](../../etc)", "1: the link ../../etc leads out of the project"),
        ("| a |\n| --- |\n| `topics/none.py` |", "3: there is no topics/none.py"),
        ("`topics/none*.py`", "1: there is no topics/none*.py"),
        ("`topics/keys.py/`", "1: there is no topics/keys.py/"),
        ("`earshot detekt FILE`", "1: No such command 'detekt'. Did you mean 'detect'?"),
        ("`earshot serve --port 80`", "1: No such option: --port"),
        ("`make walk`", "1: the Makefile has no target walk"),
        ("`make soak NAMES=nap`", "1: make soak knows no nap"),
        ("`tests/none.py::test_none`", "1: there is no tests/none.py"),
        ("`tests/test_one.py::test_two`", "1: tests/test_one.py has no test test_two"),
        ("| bound | test |\n| --- | --- |\n| much | `tests/test_one.py` |", "3: this row names no test"),
        (f"1. One.\n2. Two.\n\n| promise | test |\n| --- | --- |\n| 1 | {ONE} |", "2: promise 2 has no test"),
        ("`EARSHOT_PROT`", "1: EARSHOT_PROT is not a setting; did you mean EARSHOT_PORT?"),
        ("```sh\nearshot speakers add\n```", "1: earshot speakers add: Missing argument 'name'."),
        ("```sh\nX=1 a/earshot org\n```", "1: a/earshot org: org is not a whole command"),
        ("```sh\ntrue |\n  earshot engines --port x\n```", "1: earshot engines --port x: Invalid value for '--port'"),
        ("```sh\nmake UV=1 walk\n```", "1: make UV=1 walk: the Makefile has no target walk"),
        ("```sh\npython3 -m topics.none\n```", "1: python3 -m topics.none: there is no module topics.none"),
        ("```sh\ncurl -F a=@topics/none.py\n```", "1: there is no topics/none.py"),
        (
            '```sh\ncurl -s -H "X-Api-Key: $EARSHOT_PROJECT_KEY" http://here\n```',
            "1: curl -s -H X-Api-Key: $EARSHOT_PROJECT_KEY http://here: shows a key to everybody who lists processes",
        ),
        ("```sh\npip install x\n```", "1: pip install x: may be the pip of the system, name the one of an environment"),
        ("```sh\necho 'a\n```", "1: no shell code: No closing quotation"),
        ("```python\nfrom earshot_client import Nobody\n```", "1: earshot_client has no Nobody"),
        ("```python\nprint(\n```", "1: no Python: '(' was never closed"),
        ("```json\n{\n```", "1: no JSON: "),
        ("```\nearshot detekt\n```", "1: a block of language '': expected one of "),
    ],
)
def test_planted_fault_is_found(root: Path, text: str, fault: str) -> None:
    (line,) = found(root, text)
    assert line.startswith(fault)


def test_changelog_may_name_removed_files(root: Path) -> None:
    text = "`topics/gone.py`, `EARSHOT_GONE`\n\n[a](none.md)"
    assert found(root, text, "CHANGELOG.md") == ["3: the link none.md leads nowhere"]


def test_script_is_split_into_commands() -> None:
    script = "A=1 B=2\nA=1 one t:w,o\\\n  three; four 'fi ve' # six\n(seven | eight) > nine"
    assert list(commands(script)) == [["one", "t:w,o", "three"], ["four", "fi ve"], ["seven"], ["eight"], ["nine"]]
