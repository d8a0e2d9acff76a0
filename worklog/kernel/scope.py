"""What names stand for at a place in a function: expressions of a source that a launch there is written with.

A name whose value isn't known any more, as behind a loop that changes it, is UNCLEAR. The sizes of a dim3 are its
members, and those of a launch's configuration its fields: grid.x, config.gridDim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from worklog.kernel.source import UNCLEAR, sizes_in, text_of

BY_ADDRESSES = ("cudaLaunchKernel", "cudaLaunchCooperativeKernel")
BY_CONFIG = ("cudaLaunchKernelEx", "cudaLaunchKernelExC")
CONFIGURED = {"gridDim": UNCLEAR, "blockDim": UNCLEAR, "dynamicSmemBytes": "0"}


def targets(node: Any) -> set[str]:
    """What an expression changes: by an assignment, or by a call that gets an address, where it isn't a launch."""
    if node.type != "call_expression":
        return {text_of(node.child_by_field_name("left") or node.child_by_field_name("argument"))}
    function, arguments = (node.child_by_field_name(field) for field in ("function", "arguments"))
    if arguments is None or text_of(function) in (*BY_CONFIG, *BY_ADDRESSES):
        return set()
    return {text_of(given)[1:] for given in arguments.named_children if text_of(given).startswith("&")}


def forget(names: dict[str, str], targets: Iterable[str]) -> None:
    """Names whose value changes, and those that are computed from them."""
    for target in targets:
        if target in names or f"{target}.x" in names:
            of_target = re.compile(rf"{re.escape(target)}(?:\.\w+)?|.*\b{re.escape(target)}\b.*", re.DOTALL)
            for name, text in names.items():
                mentions = text != UNCLEAR and (target in text or target in name)
                if mentions and (of_target.fullmatch(name) or of_target.fullmatch(text)):
                    names[name] = UNCLEAR


def assign(names: dict[str, str], name: str, text: str) -> None:
    """A name's value: an expression, or the sizes of a dim3, which are its members."""
    names[name] = text
    given = sizes_in(text) if f"{name}.x" in names or text.startswith("dim3") else []
    if f"{text}.x" in names:
        given = [names.get(member, UNCLEAR) for member in members(text)]
    for member, size in zip(members(name), [*given, "1", "1"] if given else (), strict=False):
        names[member] = size


def members(name: str) -> tuple[str, ...]:
    """The names of the sizes of a dim3."""
    return f"{name}.x", f"{name}.y", f"{name}.z"


def declare(node: Any, names: dict[str, str]) -> None:
    """The names that a declaration gives a value."""
    kind = text_of(node.child_by_field_name("type"))
    for declarator in node.children_by_field_name("declarator"):
        value, name = declarator.child_by_field_name("value"), declarator
        if declarator.type == "function_declarator" and kind == "dim3":  # dim3 grid(n, m) may look like one
            value = declarator.child_by_field_name("parameters")
        while name is not None and name.type != "identifier":
            in_brackets = name.named_children if name.type == "parenthesized_declarator" else [None]  # (*function)
            name = name.child_by_field_name("declarator") or in_brackets[0]
        if name is None:
            continue
        own, text = text_of(name), text_of(value)
        for member in members(own):
            names.pop(member, None)
        if kind == "dim3":
            bare = re.fullmatch(r"[({].*[)}]|", text, re.DOTALL)
            assign(names, own, f"dim3{text or '()'}" if bare else text)
        elif value is None or re.search(r"\b(?:float|double|half)", kind):
            names[own] = UNCLEAR
        elif kind == "cudaLaunchConfig_t":
            for field, given in zip(CONFIGURED, value.named_children, strict=False):
                pair = given.type == "initializer_pair"
                names[f"{own}.{text_of(given.named_children[0])[1:] if pair else field}"] = text_of(
                    given.named_children[-1] if pair else given
                )
        else:
            is_list = value.type == "initializer_list" and declarator.child_by_field_name("declarator") == name
            assign(names, own, text[1:-1] if is_list or value.type == "argument_list" else text)
