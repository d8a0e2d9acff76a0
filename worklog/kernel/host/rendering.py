"""Statements of host code as code that records launches, with code in place of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from worklog.kernel.host.calls import BY_CONFIG, VARIABLES, HostCall, launch_at
from worklog.kernel.host.exits import is_message
from worklog.kernel.source import nodes, text_of
from worklog.kernel.unit import Definition


def rendered(node: Any, function: Definition, inputs: Mapping[str, str], leave: str = "") -> str:
    """Return a node's text, in a function, with code in place of inputs and launches.

    inputs: names, each with the code that stands for it
    leave: code in place of each return
    """
    edits = list[tuple[int, int, str]]()
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        if inner.type == "qualified_identifier" and not [*nodes(inner, "template_argument_list")]:
            continue  # a name in a class or a namespace is no variable of the function
        text = text_of(inner) if inner.type in VARIABLES else ""
        if text in inputs and not _is_declared(inner):
            edits.append((inner.start_byte, inner.end_byte, inputs[text]))
            continue
        launch = launch_at(inner, function) if inner.type == "call_expression" else None
        if launch is not None:
            passed = [rendered(argument, function, inputs) for argument in launch.arguments]
            code = launch_code(launch, lambda part: rendered(part, function, inputs), passed)
            edits.append((inner.start_byte, inner.end_byte, code))
            continue
        if inner.type == "return_statement" and leave:
            edits.append((inner.start_byte, inner.end_byte, leave))
            continue
        if inner.type == "throw_statement":
            edits.append((inner.start_byte, inner.end_byte, "exit(1);"))
            continue
        if is_message(inner):
            edits.append((inner.start_byte, inner.end_byte, ";"))
            continue
        waiting += inner.named_children
    return edited(node.text.decode(), node.start_byte, edits)


def _is_declared(node: Any) -> bool:
    """Return whether a name is the one that a declaration declares."""
    outer = node.parent
    return bool(
        outer.type in ("init_declarator", "declaration", "pointer_declarator")
        and outer.child_by_field_name("declarator") == node
    )


def edited(text: str, start: int, edits: Sequence[tuple[int, int, str]]) -> str:
    """Return a text with other code at some places.

    start: the place of the text
    """
    for first, last, code in sorted(edits, reverse=True):
        text = text[: first - start] + code + text[last - start :]
    return text


def launch_code(call: HostCall, text: Callable[[Any], str], passed: Sequence[str]) -> str:
    """Return code that records a launch, or calls a function that leads to a launch.

    text: returns the code of a node
    passed: code of the arguments
    """
    kernel = text(call.kernel)
    if call.form == "":
        return f"{kernel}({', '.join(passed)})"
    configuration = [text(node) for node in call.configuration]
    if call.form == "<<<":
        return f"(worklog::configure({', '.join(configuration)}), {kernel}({', '.join(passed)}))"
    if call.form in BY_CONFIG:
        arguments = ", ".join([configuration[0], kernel, *passed])
        return f"worklog::{BY_CONFIG[call.form]}({arguments})"
    return f"worklog::by_addresses({', '.join([kernel, *configuration, *passed])})"
