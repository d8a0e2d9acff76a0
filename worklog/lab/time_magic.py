"""`%time_gpu` and `%%time_gpu`: worklog.time for an expression or a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from worklog.errors import BadSetting, WorklogError
from worklog.harness.crosscheck import WALL_CLOCK
from worklog.runner import timing
from worklog.runs import Measurement
from worklog.settings import Harness, parse_settings

WORK = ("flops", "reads", "writes", "elements")
TEXTS = (*WORK, "against", "l2", "name", "cross-check", "datapath")
TITLE = 40  # characters of the code that name a measurement


class MagicFailed(WorklogError):
    """What is wrong with a line or a cell of a magic, shown without a traceback."""

    def __init__(self, magic: str, what: str) -> None:
        super().__init__(what)
        self.magic = magic

    def _render_traceback_(self) -> list[str]:
        """What IPython prints."""
        return [f"{self.magic}: {self}"]


@magics_class
class TimeMagics(Magics):
    """The magics for any code that works on the GPU."""

    @no_var_expand
    @line_cell_magic
    def time_gpu(self, line: str, cell: str | None = None) -> Measurement:
        """Time what an expression, or a cell, enqueues on the GPU, by worklog.time.

        Usage: %time_gpu [options] expression, or %%time_gpu [options] above the lines of a cell.

          --flops N, --reads N, --writes N, --elements N
                            work of one call, numbers or expressions without blanks: 2*n**3 (reads, writes: bytes)
          --against CODE    an expression to alternate with; quote it if it has blanks: 'a @ b'
          --l2 flush|warm   L2 before each launch (default: flush)
          --set SETTING=VALUE
                            another harness setting, repeatable (see `worklog doctor --settings`)
          --sync            the code waits for the GPU
          --cross-check wall\u00a0clock|all|none
          --datapath NAME   the TFLOP/s are shown as a share of its peak: fp32, tf32, bf16, … (default: none)
          --name NAME       in the result

        Example: %time_gpu --flops 2*4096**3 torch.mm(a, b)
        """
        texts = [f"{name}=" for name in (*TEXTS, "set")]
        options, code = self.parse_options(
            line, "", *texts, "sync", posix=False, strict=False, list_all=True, preserve_non_opts=True
        )
        given = {name: values[-1].strip("'\"") for name, values in options.items() if name in TEXTS}
        if cell is not None and code.strip():
            raise UsageError(f"%%time_gpu takes options only on its line, and the code below: {code.strip()!r}")
        source = (code if cell is None else cell).strip()
        if not source:
            raise UsageError("%time_gpu needs an expression, such as %time_gpu torch.mm(a, b)")
        try:
            settings = parse_settings(one.strip("'\"") for one in options.get("set", []))
            if "l2" in given:
                settings["l2"] = given["l2"]
            first, *more = source.splitlines()
            return timing.time(
                self._function(source),
                against=self._function(given["against"]) if "against" in given else None,
                harness=Harness().but(**settings),
                sync="sync" in options,
                cross_check=given.get("cross-check", WALL_CLOCK),
                datapath=given.get("datapath"),
                name=given.get("name") or (f"{first[:TITLE]} …" if more or len(first) > TITLE else first),
                **self._work(given),
            )
        except WorklogError as error:
            raise MagicFailed("%time_gpu", str(error)) from None

    def _function(self, source: str) -> Callable[[], None]:
        """Runs the code in the user's namespace."""
        shell: Any = self.shell
        code, names = compile(shell.transform_cell(source), "<time_gpu>", "exec"), shell.user_ns

        def run() -> None:
            exec(code, names)

        run.__name__ = source.splitlines()[0][:TITLE]
        return run

    def _work(self, given: Mapping[str, str]) -> dict[str, Any]:
        assert self.shell is not None
        found = {}
        for name in WORK:
            if name in given:
                try:
                    found[name] = eval(given[name], self.shell.user_ns)
                except Exception as error:
                    raise BadSetting(f"--{name} {given[name]}: {type(error).__name__}: {error}") from None
        return found
