"""A process that measures published examples on a GPU for tests.record.ported: `… tensara|calls WORDS` prints what it
read, as a JSON list in its last line: a number, or the reason why there is none. WORDS: its arguments in JSON.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

PRINTED = re.compile(r"([\d.]+) TFLOPs/s")


def tensara(engine: str, cases: list[list[str]]) -> list[float | str]:
    """Microseconds of cases, each a problem's file, its solution's file and a name, by Tensara's own function."""
    sys.modules["fastapi"] = _module("fastapi", HTTPException=Exception)  # which the engine only raises
    sys.path.insert(0, engine)
    import utils  # type: ignore[import-not-found]

    return [_read(_case_us, utils, *case) for case in cases]


def _case_us(utils: Any, problem: str, solution: str, case: str) -> float:
    (posed,) = (one for one in vars(_loaded(problem)).values() if _is_problem(one))
    made = posed()
    words = next(one for one in made.generate_test_cases() if one["name"] == case)
    inputs = words["create_inputs"]()
    outputs = utils.normalize_outputs(made.reference_solution(*inputs))
    empty = [one.new_zeros(one.shape) for one in outputs]
    found = utils.run_dynamic_benchmark(_loaded(solution).solution, made, 1, words, inputs, empty, language="python")
    if "runtime_ms" not in found:
        raise RuntimeError(str(found))
    return 1e3 * float(found["runtime_ms"])


def _read(function: Callable[..., float], *arguments: Any) -> float | str:
    try:
        return function(*arguments)
    except Exception as error:  # of foreign code
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _is_problem(found: object) -> bool:
    return isinstance(found, type) and hasattr(found, "reference_solution") and found.__name__ != "Problem"


def calls(folder: str, example: str, every: list[str]) -> list[float | str]:
    """The TFLOP/s that each call in an example prints. folder: of the package that the example imports."""
    with_round_up(folder)
    return [_read(_printed, vars(_loaded(example)), words) for words in every]


def _printed(names: dict[str, Any], words: str) -> float:
    printed = StringIO()
    with redirect_stdout(printed):
        eval(words, names)
    found = PRINTED.search(printed.getvalue())
    if found is None:
        raise RuntimeError(f"{words} printed no TFLOP/s: {printed.getvalue()!r:.200}")
    return float(found[1])


def with_round_up(folder: str) -> None:
    """The package flashinfer of a folder with what its modules take from files that import compiled code."""
    package = _module("flashinfer", __path__=[str(Path(folder) / "flashinfer")])
    sys.modules["flashinfer"] = package
    sys.modules["flashinfer.utils"] = _module(
        "flashinfer.utils",
        round_up=lambda x, y: -(-x // y) * y,
        get_compute_capability=_compute_capability,
        GPUArchitectureError=RuntimeError,
    )


def _compute_capability(device: Any) -> Any:
    import torch

    return torch.cuda.get_device_capability(device)


def _module(name: str, **values: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(values)
    return module


def _loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"published_{Path(path).stem}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    print(json.dumps({"tensara": tensara, "calls": calls}[sys.argv[1]](*json.loads(sys.argv[2]))))
