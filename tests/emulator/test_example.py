"""The emulator's README and its face."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from worklog import emulator

FOLDER = Path(emulator.__file__).parent


def test_the_readme_s_example_runs_as_it_stands(tmp_path):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (finding,) = done.stdout.splitlines()
    assert finding.startswith("global-out-of-bounds thread 31 of block (0, 0, 0) reads 4 bytes")


def test_every_exported_name_exists():
    for name in emulator.__all__:
        assert getattr(emulator, name).__name__ == name


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = emulator.laod


def test_it_imports_no_other_room_than_errors():
    imports = re.compile(r"^\s*(?:from|import) worklog(?:\.(\w+))?", re.MULTILINE)
    for path in FOLDER.rglob("*.py"):
        rooms = {*imports.findall(path.read_text(encoding="utf-8"))}
        assert rooms <= {"emulator", "errors"}, path
