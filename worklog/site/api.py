"""The page of the Python interface: every public name with its signature and its docstring."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from html import escape
from typing import Any, Literal, get_args, get_origin

import worklog
from worklog import errors as errors_module
from worklog import lab, plots
from worklog.errors import WorklogError

PARAMETER = re.compile(r"[a-z_]\w*(, \w+)*: ")  # the begin of a parameter's line in a docstring
MODULES = r"\b(?!pandas)[a-z_]+\.(?:[a-z_]+\.)*(?=[A-Z])"  # before a type's name
SHORT = 72  # characters of a signature that stands on one line
LONG_DEFAULT = 40  # characters
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
    full_name = f"{module}.{name}"
    signature = full_name if is_error else _signature(full_name, value)
    html = f'<h3 id="{full_name}">{name}</h3>'
    html += f'<pre tabindex="0">{escape(signature)}</pre>'
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
    signature = name if isinstance(member, property) else _signature(name, function)
    return f"<dt><code>{escape(signature)}</code></dt><dd>{escape(summary)}</dd>"


def _signature(name: str, value: Any) -> str:
    """Return `name(parameters) -> result`, one parameter a line where a line would be long."""
    if inspect.isclass(value) and _is_foreign(value):
        return name
    signature = inspect.signature(value)
    named_types = vars(sys.modules[value.__module__])
    parameters = _parameters(signature, named_types)
    result = "" if inspect.isclass(value) else _result(signature)
    short = f"{name}({', '.join(parameters)}){result}"
    if len(short) <= SHORT:
        return short
    lines = "".join(f"    {parameter},\n" for parameter in parameters)
    return f"{name}(\n{lines}){result}"


def _is_foreign(cls: type) -> bool:
    """Tell whether a class is made by another package's constructor."""
    constructor = inspect.getattr_static(cls, "__init__")
    is_own = inspect.isfunction(constructor) and constructor.__module__.startswith("worklog")
    return not is_own and not is_dataclass(cls)


def _parameters(signature: inspect.Signature, named_types: Mapping[str, Any]) -> list[str]:
    """Return each parameter as it is written in a call's definition, with the bare *."""
    texts = []
    is_marked = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            is_marked = True
        if parameter.kind is parameter.KEYWORD_ONLY and not is_marked:
            texts.append("*")
            is_marked = True
        texts.append(_parameter_text(parameter, named_types))
    return texts


def _parameter_text(parameter: inspect.Parameter, named_types: Mapping[str, Any]) -> str:
    """Return `name: type = default`, where a default that is made at each call is `…`.

    A type that is a name for some literals (`L2`) is written as these.
    """
    text: str = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        text = f"*{text}"
    elif parameter.kind is parameter.VAR_KEYWORD:
        text = f"**{text}"
    is_typed = parameter.annotation is not parameter.empty
    if is_typed:
        alias = named_types.get(str(parameter.annotation))
        literals = get_args(alias) if get_origin(alias) is Literal else ()
        annotated = " | ".join(map(repr, literals)) or _type_text(parameter.annotation)
        text += f": {annotated}"
    if parameter.default is parameter.empty:
        return text
    return text + (" = " if is_typed else "=") + _default_text(parameter.default)


def _default_text(default: object) -> str:
    """Return a default as one would write it."""
    if inspect.isfunction(default):
        return str(default.__name__)
    text = repr(default)
    return "…" if "<" in text or len(text) > LONG_DEFAULT else text


def _result(signature: inspect.Signature) -> str:
    """Return ` -> type`, or "" where no type is given."""
    if signature.return_annotation is signature.empty:
        return ""
    return f" -> {_type_text(signature.return_annotation)}"


def _type_text(annotation: object) -> str:
    """Return an annotation without the modules of this package and the standard library's."""
    if isinstance(annotation, str):
        text = annotation
    elif isinstance(annotation, type):
        text = annotation.__name__
    else:
        text = str(annotation)
    return re.sub(MODULES, "", text)


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
