"""`make stale` notices a change of what generated files are made from, and of the files; what the contributors' page
names is there; and the plan of the house holds where `make check` does not look: names, layers, lengths, and words.
"""

import json
import re
import tomllib
from importlib.util import find_spec

import pytest

from tests import stale, structure
from worklog.cli import COMMANDS

LONGEST = 400


@pytest.mark.parametrize(
    ("name", "text", "is_stale"),
    [
        ("data.csv", "another", True),
        ("page.md", "another", True),
        ("chart.py", "# why\n\nx = 1\n", False),
        ("chart.py", "x = 2\n", True),
    ],
)
def test_a_change_of_the_data_of_the_result_or_of_the_code_makes_files_stale(
    name, text, is_stale, tmp_path, monkeypatch
):
    for file in ("data.csv", "page.md", "chart.py"):
        (tmp_path / file).write_text("x = 1\n")
    target = stale.Target("", ("chart",), ("*.csv",), ("*.md",))
    made = tmp_path / "made.json"
    changes = {"ROOT": tmp_path, "TARGETS": {"chart": target}, "MADE": made}
    for attribute, value in {
        **changes,
        "sources": lambda module: [tmp_path / f"{module}.py"],
    }.items():
        monkeypatch.setattr(stale, attribute, value)
    made.write_text(json.dumps({"chart": stale.fingerprint(target)}))
    assert stale.stale() == []
    (tmp_path / name).write_text(text)
    assert stale.stale() == ["chart"] * is_stale


def test_every_target_has_files_and_code_that_is_there():
    for name, target in stale.TARGETS.items():
        assert all(any(stale.ROOT.glob(pattern)) for pattern in (*target.data, *target.files)), name
        assert all(path.is_file() for module in target.code for path in stale.sources(module)), name
    for target in (stale.TARGETS["notebooks"], stale.TARGETS["figures"]):
        assert any(
            path.match("plots/charts/lines.py")
            for module in target.code
            for path in stale.sources(module)
        )


def test_a_change_of_the_readmes_words_makes_it_stale_and_its_command_is_run():
    readme = next(target for target in stale.TARGETS.values() if "README.md" in target.files)
    words = stale.ROOT / "tests" / "record" / "readme.toml"
    assert any(words in stale.ROOT.glob(pattern) for pattern in readme.data)
    assert "python -m tests.record.readme" in readme.command.split(" && ")


def test_what_contributors_are_told_to_edit_and_to_run_is_there():
    page = (stale.ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert page.count("\n| a") == 6 and len(page.splitlines()) < 40
    for words in re.findall(r"`(.+?)`", page):
        if words.startswith("python -m "):
            _, _, module, *options = words.split()
            assert find_spec(module) is not None, words
            assert not options or {*options[1:]} <= {*stale.TARGETS, "all"}, words
        elif words.startswith("worklog "):
            assert words.split()[1] in COMMANDS, words
        elif words.startswith("make "):
            assert re.search(
                rf"^{words.split()[1]}:", (stale.ROOT / "Makefile").read_text(), re.MULTILINE
            ), words
        elif "/" in words:
            assert (stale.ROOT / words).exists(), words


def test_the_structure_keeps_to_its_goals():
    """One layer a row of the table of rooms, and files that are read in one sitting."""
    assert len(structure.names()) < 20
    contracts = tomllib.loads((structure.ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "tool"
    ]["importlinter"]
    assert len(contracts["contracts"][0]["layers"]) <= 12
    texts = {
        path: path.read_text(encoding="utf-8").splitlines()
        for path in structure.sources("worklog", "py", "cu")
    }
    assert [str(path) for path, lines in texts.items() if len(lines) > LONGEST] == []
    assert (
        sum(
            structure.AVOIDED.search(line) is not None for lines in texts.values() for line in lines
        )
        < 30
    )
