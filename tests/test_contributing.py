"""What the contributors' page names is there, and generated files are current.

`make stale` notices a change of what they are made from, and of the files. The plan of the house
holds where `make check` does not look: names, layers, lengths, and words.
"""

import re
import shutil
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from tests import stale, structure
from tests.definitions import Definitions
from worklog.cli import COMMANDS

SOURCE = """
from other import LIMIT, unread
LIMITS = {"a": LIMIT}
UNREAD = 1

class Unused:
    size = 1

class Used:
    size = 1

    def draw(self):
        return LIMITS["a"] + self.size

    def unused(self):
        return UNREAD

class Shown(Used):
    pass

def main():
    "Draw."
    return Shown().draw()
"""
OTHER = "LIMIT = 3\nunread = 4\n"
COMMAND = "python -m main"
MAIN = """
from pathlib import Path
from source import main
files = [*Path("folder").iterdir()]
Path("page.md").write_text(str(main()) + Path("data.csv").read_text() + str(len(files)))
"""


def use(root: Path, patch: pytest.MonkeyPatch) -> None:
    target = stale.Target(COMMAND, ("*.md",), versions=False)
    changes = {"ROOT": root, "TARGETS": {"page": target}, "MADE": root / "made"}
    for name, value in changes.items():
        patch.setattr(stale, name, value)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a target whose command ran once."""
    root = tmp_path_factory.mktemp("made") / "checkout"
    (root / "folder").mkdir(parents=True)
    texts = {"main.py": MAIN, "source.py": SOURCE, "other.py": OTHER, "data.csv": "x"}
    for name, text in {**texts, "note.txt": "x", "folder/first.csv": "x"}.items():
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    with pytest.MonkeyPatch.context() as patch:
        use(root, patch)
        assert stale.changes("page") == ["made/page.txt"], "it has never been made"
        stale.make("page")
    return root


@pytest.fixture
def checkout(made, tmp_path, monkeypatch):
    """Return a copy of the folder, to be changed."""
    root = tmp_path / "checkout"
    shutil.copytree(made, root)
    use(root, monkeypatch)
    assert stale.changes("page") == []
    return root


@pytest.mark.parametrize(
    ("file", "old", "new", "is_stale"),
    [
        ("data.csv", "x", "another", True),
        ("page.md", "4x1", "by hand", True),
        ("main.py", "str(main())", "repr(main())", True),
        ("source.py", 'LIMITS["a"] + self.size', "0", True),
        ("source.py", '"a": LIMIT', '"a": 5', True),
        ("source.py", "import LIMIT, unread", "import unread as LIMIT, unread", True),
        ("source.py", "class Used:\n    size = 1", "class Used:\n    size = 2", True),
        ("source.py", "    def draw(self):", "    __repr__ = str\n    def draw(self):", True),
        ("source.py", "    def draw(self):", "    @staticmethod\n    def draw(self):", True),
        ("source.py", "UNREAD = 1", "UNREAD = 1\nprint(UNREAD)", True),
        (
            "source.py",
            "    return Shown().draw()",
            "    shown = Shown()\n    return shown.draw()",
            True,
        ),
        ("other.py", "LIMIT = 3", "LIMIT = 4", True),
        (
            "source.py",
            "class Shown(Used):",
            "class Shown(Used):\n    def draw(self): return 0",
            True,
        ),
        (
            "source.py",
            "    def draw(self):",
            "    def __len__(self): return 0\n    def draw(self):",
            True,
        ),
        (
            "source.py",
            "    def draw(self):",
            "    def another(self): return 0\n    def draw(self):",
            False,
        ),
        ("source.py", "class Unused:\n    size = 1", "class Unused:\n    size = 2", False),
        ("source.py", "return UNREAD", "return 2", False),
        ("source.py", "UNREAD = 1", "UNREAD = 2\nclass Another: pass", False),
        ("source.py", '"Draw."', '"Draw it."  # why', False),
        (
            "source.py",
            'LIMITS["a"] + self.size',
            'LIMITS[\n            "a"\n        ] + self.size',
            False,
        ),
        ("source.py", "import LIMIT, unread", "import unread, LIMIT", False),
        ("other.py", "unread = 4", "unread = 5", False),
        ("note.txt", "x", "another", False),
    ],
)
def test_files_are_stale_if_what_ran_or_was_read_is_different(file, old, new, is_stale, checkout):
    path = checkout / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert stale.changes("page") == [file] * is_stale


def test_a_new_file_in_a_listed_folder_makes_files_stale_and_what_a_compiler_leaves_there_does_not(
    checkout,
):
    for name in ("core.so", ".hidden", "__pycache__"):
        (checkout / "folder" / name).write_text("x", encoding="utf-8")
    assert stale.changes("page") == []
    (checkout / "folder" / "second.csv").write_text("x", encoding="utf-8")
    assert stale.changes("page") == ["folder/"]


def test_files_that_were_made_are_listed_with_the_command_and_made_again(checkout, capsys):
    (checkout / "data.csv").write_text("another", encoding="utf-8")
    stale.main([], standalone_mode=False)
    assert capsys.readouterr().out == "*.md (data.csv changed): python -m tests.stale --make page\n"
    stale.main(["--make", "all"], standalone_mode=False)
    assert re.fullmatch(
        rf"page: {COMMAND}\npage: 1 of 1 files changed, in \d+ s\n", capsys.readouterr().out
    )
    stale.main([], standalone_mode=False)
    assert capsys.readouterr().out == ""


def test_a_command_that_fails_leaves_the_record_and_says_so(checkout):
    record = (checkout / "made" / "page.txt").read_text(encoding="utf-8")
    (checkout / "source.py").unlink()
    with pytest.raises(
        click.ClickException, match=r"`python -m main` exited with 1, .*--make page"
    ):
        stale.make("page")
    assert (checkout / "made" / "page.txt").read_text(encoding="utf-8") == record
    assert "source.py" in stale.changes("page")


def test_a_digest_is_the_same_in_each_version_of_python(tmp_path):
    file = tmp_path / "source.py"
    file.write_text('def f(x, *, n=1.5):\n    return f"{x:>{n}}" f"a" rf"{x!r}", 0x10, b"e"[0:]\n')
    assert Definitions(file).digest(["f"]) == "80aa4225b88c"


def test_every_target_has_files_and_its_command_is_there():
    for name, target in stale.TARGETS.items():
        assert all(any(stale.ROOT.glob(pattern)) for pattern in target.files), name
        for command in target.command.split(" && "):
            assert find_spec(command.split()[2]) is not None, command


def test_the_workflow_of_pull_requests_runs_what_is_there():
    text = (stale.ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    makefile = (stale.ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"run: (.+)", text)
    assert len(commands) == 2
    for command in commands:
        program, *words = command.split()
        if program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE), command
        else:
            assert (stale.ROOT / program).exists(), command
    project = tomllib.loads((stale.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [words.rpartition(" ")[2] for words in project["classifiers"] if ":: 3." in words]
    assert re.search(r'python: \["(.+)", "(.+)"\]', text).groups() == (versions[0], versions[-1])


def test_what_contributors_are_told_to_edit_and_to_run_is_there():
    page = (stale.ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert page.count("\n| a") >= 6
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
            room = stale.ROOT / "worklog" / words
            assert (stale.ROOT / words).exists() or room.exists(), words
    rooms = {
        path.name for path in (stale.ROOT / "worklog").iterdir() if (path / "__init__.py").exists()
    }
    assert {name.rstrip("/") for name in re.findall(r"`(\w+/)`(?=[^\n]* \| )", page)} == rooms


def test_the_structure_keeps_to_its_goals():
    """One layer a row of the table of rooms, and few words that are avoided."""
    assert len(structure.names()) <= 24
    contracts = tomllib.loads((structure.ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "tool"
    ]["importlinter"]
    assert len(contracts["contracts"][0]["layers"]) <= 12
    texts = {
        path: path.read_text(encoding="utf-8").splitlines()
        for path in structure.sources("worklog", "py", "cu")
    }
    assert (
        sum(
            structure.AVOIDED.search(line) is not None for lines in texts.values() for line in lines
        )
        < 30
    )
