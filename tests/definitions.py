"""Return what a Python file defines, as parts with a digest each.

So `make stale` compares only the functions that ran, and the classes and constants that they
name. A digest doesn't change with comments, docstrings, or the format.
"""

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

# Of the syntax tree: what no program can notice, or what other versions of Python don't have.
LEFT_OUT = ("ctx", "type_params", "type_comment", "kind")
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = "<module>"  # the name of the statements that define nothing: they run at the import


class Definitions:
    """The parts of a file by name.

    Functions, methods ("Shape.of"), classes, constants, and imported names.
    """

    def __init__(self, path: Path) -> None:
        self.parts = defaultdict[str, list[ast.AST]](list)
        self.methods = defaultdict[str, list[str]](list)
        # The file and the name that an imported name stands for, as written: "worklog.runs", "Run",
        # 0 dots.
        self.imported: dict[str, tuple[str, str, int]] = {}
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            self._add(statement)

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, FUNCTION):
            self.parts[statement.name].append(statement)
        elif isinstance(statement, ast.ClassDef):
            self.parts[statement.name].append(statement)
            for part in statement.body:
                if isinstance(part, FUNCTION):
                    self.methods[statement.name].append(part.name)
                    self.parts[f"{statement.name}.{part.name}"].append(part)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                origin = (statement.module or "", alias.name, statement.level)
                self.imported[alias.asname or alias.name] = origin
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                self.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, "", 0)
        elif names := list(_assigned(statement)):
            for name in names:
                self.parts[name].append(statement)
        elif not _is_inert(statement):
            self.parts[STATEMENTS].append(statement)

    @cached_property
    def constants(self) -> set[str]:
        """The names that aren't functions: of constants and classes."""
        return {
            name
            for name, nodes in self.parts.items()
            if name != STATEMENTS and not isinstance(nodes[0], FUNCTION)
        }

    def is_function(self, name: str) -> bool:
        """Return whether a name is a function's or a method's, not a class's or a constant's."""
        return isinstance(self.parts.get(name, [None])[0], FUNCTION)

    def words(self, name: str) -> Iterator[str]:
        """Yield the words that make up a part; None of a name that isn't defined here."""
        for node in self.parts.get(name, ()):
            if isinstance(node, ast.ClassDef):
                yield from self._words_of_class(node)
            else:
                yield from _words(node)

    def _words_of_class(self, node: ast.ClassDef) -> Iterator[str]:
        """Yield a class's words without its methods, which are separate parts.

        Of the methods, yield only the names of those that may run though no code names them, as
        Python or a base class calls them.
        """
        for part in (*node.bases, *node.keywords, *node.decorator_list):
            yield from _words(part)
        for statement in node.body:
            if isinstance(statement, FUNCTION):
                if node.bases or statement.name.startswith("_"):
                    yield statement.name
            elif not _is_docstring(statement):
                yield from _words(statement)

    def names(self, name: str) -> Iterator[tuple[str, bool]]:
        """Yield the names that a part reads, each with whether it is a variable.

        Otherwise the name is an attribute, or a string, by which something may be looked up.
        """
        for node in self.parts.get(name, ()):
            whole = isinstance(node, ast.ClassDef)
            parts = (
                [part for part in node.body if not isinstance(part, FUNCTION)] if whole else [node]
            )
            if whole:
                parts = [*parts, *node.bases, *node.keywords, *node.decorator_list]
            for part in parts:
                yield from _names(part)

    def digest(self, names: Iterable[str]) -> str:
        """Return one digest of these parts, and of what the names in them are imported from."""
        digest = hashlib.sha256()
        read = set[str]()
        for name in sorted(names):
            digest.update(f"\n{name}:".encode())
            digest.update(" ".join(self.words(name)).encode())
            read |= {variable for variable, is_variable in self.names(name) if is_variable}
        for name in sorted(read & self.imported.keys()):
            digest.update(f"\n{name} is {self.imported[name]}".encode())
        return digest.hexdigest()[:12]


def _assigned(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Assign):
        targets = [node for target in statement.targets for node in ast.walk(target)]
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    else:
        return
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_inert(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing when the module is imported."""
    is_for_types = (
        isinstance(statement, ast.If)
        and isinstance(statement.test, ast.Name)
        and statement.test.id == "TYPE_CHECKING"
    )
    return is_for_types or _is_docstring(statement)


def _words(node: ast.AST) -> Iterator[str]:
    """Yield the words of a syntax tree: its nodes' types and constants."""
    yield type(node).__name__
    for field in node._fields:
        if field in LEFT_OUT:
            continue
        value = getattr(node, field, None)
        if field == "body" and isinstance(node, FUNCTION) and _is_docstring(value[0]):
            value = value[1:]
        if field == "values" and isinstance(node, ast.JoinedStr):
            # Python 3.12.1 has empty strings there.
            value = [part for part in value if getattr(part, "value", None) != ""]
        if isinstance(value, list):
            yield field
            for item in value:
                if isinstance(item, ast.AST):
                    yield from _words(item)
                else:
                    yield repr(item)
        elif isinstance(value, ast.AST):
            yield from _words(value)
        elif value is not None:
            yield repr(value)


def _names(node: ast.AST) -> Iterator[tuple[str, bool]]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id, True
        elif isinstance(inner, ast.Attribute):
            yield inner.attr, False
        elif (
            isinstance(inner, ast.Constant)
            and isinstance(inner.value, str)
            and inner.value.isidentifier()
        ):
            yield inner.value, False
        elif isinstance(inner, ast.ImportFrom):
            for alias in inner.names:
                yield alias.name, False
