"""The plan of the house holds where `make check` does not look: names, layers, lengths, and words."""

import tomllib

from tests import structure

LONGEST = 400


def test_the_structure_keeps_to_its_goals():
    """One layer a row of the table of rooms, and files that are read in one sitting."""
    assert len(structure.names()) < 20
    contracts = tomllib.loads((structure.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    assert len(contracts["contracts"][0]["layers"]) <= 12
    texts = {path: path.read_text(encoding="utf-8").splitlines() for path in structure.sources("worklog", "py", "cu")}
    assert [str(path) for path, lines in texts.items() if len(lines) > LONGEST] == []
    assert sum(structure.AVOIDED.search(line) is not None for lines in texts.values() for line in lines) < 30
