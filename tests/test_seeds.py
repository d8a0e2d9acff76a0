"""notebooks/seeds.md: no row points at nothing."""

import ast
import inspect
import re
import shlex
from importlib.util import find_spec
from itertools import pairwise
from pkgutil import resolve_name

import click

import worklog
from tests.seeds import PAGE, ROOT, ROWS, Row, page
from worklog.cli import main
from worklog.settings import parse_settings

HELD = [row for row in ROWS if row.test]


def test_what_does_it_exists():
    for row in HELD:
        require(row)


def require(row: Row) -> None:
    """Fail, with the row in the traceback, unless its command or its name is there."""
    if row.how.startswith("worklog "):
        _, name, *words = shlex.split(row.how)
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
        settings = [after for before, after in pairwise(words) if before == "--set"]
        worklog.Harness().but(**parse_settings(settings))
        return
    if row.how.startswith("python -m "):
        assert find_spec(row.how.split()[2]) is not None
        return
    tree = ast.parse(row.how, mode="eval").body
    function = tree.func if isinstance(tree, ast.Call) else tree
    found = resolve_name(ast.unparse(function))
    if isinstance(tree, ast.Call):
        arguments = {str(word.arg): None for word in tree.keywords}
        inspect.signature(found).bind(*tree.args, **arguments)
        if found is not worklog.time:  # which would need a GPU
            eval(row.how, {"worklog": worklog})


def test_the_test_that_holds_it_exists():
    for row in HELD:
        file, _, name = row.test.partition("::")
        assert re.search(
            rf"^def {name}\(", (ROOT / "tests" / file).read_text("utf-8"), re.MULTILINE
        ), row


def test_the_page_is_the_tables():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.seeds"
    absent = [row.how for row in ROWS if not row.test]
    assert absent and all(reason.endswith(".") and " " in reason for reason in absent)
