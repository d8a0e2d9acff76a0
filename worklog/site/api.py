"""The page of the Python interface: every public name with its signature and its docstring."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from html import escape
from typing import Any

import worklog
from worklog import errors as errors_module
from worklog import lab, plots
from worklog.errors import WorklogError

QUOTED = r"((?:[\w*]:|->) )(['\"])(.*?)\2(?=, |\)| = |$)"  # an annotation, which is a text
PARAMETER = re.compile(r"[a-z_]\w*(, \w+)*: ")  # the begin of a parameter's line in a docstring
TITLE = "The Python interface"
ABOUT = "Every public name of worklog, with its signature and what it does."


def page_body() -> str:
    """Return the page's HTML: the package, the charts, the notebook layer, and the errors."""
    sections = {
        "worklog": {name: getattr(worklog, name) for name in sorted([*worklog.__all__, "time"])},
        "worklog.plots": {name: getattr(plots, name) for name in plots.__all__},
        "worklog.lab": {name: getattr(lab, name) for name in lab.__all__},
        "worklog.errors": dict(_errors()),
    }
    html = [f"<h1>{TITLE}</h1>", _text(inspect.getdoc(worklog) or "")]
    for module, names in sections.items():
        html.append(f'<h2 id="{module}">{module}</h2>')
        for name, value in names.items():
            if inspect.isfunction(value) or inspect.isclass(value):
                html.append(_entry(module, name, value))
    return "\n".join(html)


def _errors() -> Iterator[tuple[str, Any]]:
    """Yield the errors that a user can cause or meet, by name."""
    for name, value in vars(errors_module).items():
        if inspect.isclass(value) and issubclass(value, WorklogError):
            yield name, value


def _entry(module: str, name: str, value: Any) -> str:
    """Return a name's signature and docstring, and the public methods of a class."""
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    signature = "" if is_error else _signature(value)
    html = f'<h3 id="{module}.{name}">{name}</h3>'
    html += f"<p><code>{escape(f'{module}.{name}{signature}')}</code></p>"
    html += _text(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not is_error:
        methods = "".join(_method(method, member) for method, member in vars(value).items())
        if methods:
            html += f"<dl>{methods}</dl>"
    return f"<section>{html}</section>"


def _method(name: str, member: Any) -> str:
    """Return a public method or property of a class with its summary, or "" for anything else."""
    function = getattr(member, "__func__", member)
    is_shown = inspect.isfunction(function) or isinstance(member, property)
    summary = (inspect.getdoc(member) or "").partition("\n")[0]
    if name.startswith("_") or not is_shown or not summary:
        return ""
    signature = "" if isinstance(member, property) else _signature(function)
    return f"<dt><code>{escape(name + signature)}</code></dt><dd>{escape(summary)}</dd>"


def _signature(value: Any) -> str:
    """Return a signature without quotes around its annotations, or "" if there is none."""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    return re.sub(QUOTED, r"\1\3", signature)


def _text(documented: str) -> str:
    """Return a docstring as HTML: paragraphs, a list of parameters, and indented code."""
    html: list[str] = []
    code: list[str] = []
    for block in documented.split("\n\n"):
        if block.startswith(" "):
            code.append(block)
            continue
        html += _code(code)
        code = []
        html += _block(block.splitlines())
    return "".join([*html, *_code(code)])


def _code(blocks: list[str]) -> list[str]:
    """Return indented blocks as one listing, or nothing without a block."""
    if not blocks:
        return []
    listing = textwrap.dedent("\n\n".join(blocks))
    return [f'<pre tabindex="0">{escape(listing)}</pre>']


def _block(lines: list[str]) -> list[str]:
    """Return lines without a blank one among them: parameters and what each is, then prose."""
    parameters: list[list[str]] = []
    prose: list[str] = []
    for line in lines:
        if prose:
            prose.append(line)
        elif PARAMETER.match(line):
            parameters.append([line])
        elif parameters and line.startswith(" "):
            parameters[-1].append(line)
        else:
            prose.append(line)
    html = []
    if parameters:
        html.append(f"<dl>{''.join(map(_parameter, parameters))}</dl>")
    if prose:
        html.append(f"<p>{_joined(prose)}</p>")
    return html


def _parameter(lines: list[str]) -> str:
    """Return the lines of one parameter as a term and its description."""
    names, _, first = lines[0].partition(": ")
    return f"<dt><code>{names}</code></dt><dd>{_joined([first, *lines[1:]])}</dd>"


def _joined(lines: list[str]) -> str:
    """Return wrapped lines as one, escaped; words between backticks are code."""
    text = escape(" ".join(line.strip() for line in lines))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
