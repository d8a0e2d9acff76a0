"""`worklog …`: the list of commands, and how their errors end.

Exit codes: 0 done, 1 a failed check or a regression, 2 a usage error or runs that can't be
compared, 130 interrupted.
"""

from __future__ import annotations

from worklog.cli.interrupt import ExitOnInterrupt

with ExitOnInterrupt():  # first, since the other imports take most of a second
    import os
    import warnings
    from difflib import get_close_matches
    from importlib import import_module
    from itertools import pairwise
    from typing import Any

    import click

    from worklog import __version__
    from worklog.cli.streams import usable_streams
    from worklog.errors import BadSetting, Interrupted, WorklogError, meant
    from worklog.settings import COMMAND, Harness

# In the order of use: each command's module, and what it does in one line.
COMMANDS = {
    "doctor": ("harness", "Show what is installed, or the harness's settings."),
    "run": ("run", "Check and time kernels beside cuBLAS."),
    "bench": ("bench", "Time the benchmarks that a Python file declares."),
    "show": ("saved_runs", "Print a run, or write it as CSV, Markdown or Parquet."),
    "compare": ("saved_runs", "Report what became faster or slower between runs."),
    "log": ("saved_runs", "List, export or remove the runs of this machine."),
    "ablate": ("harness", "Bias the harness one setting at a time, and compare."),
    "inspect": ("check", "Registers, occupancy, and memory counts by source line."),
    "profile": ("check", "Hardware counters of one launch, and what limits the kernel."),
    "new": ("check", "Write a kernel, a solution of a problem, or the notebooks."),
    "check": ("check", "Check your kernel at every stage of the gate."),
    "sweep": ("sweep", "Check and time the tiles of a rung."),
    "exploits": ("harness", "Show every exploit, and which harnesses pass it."),
    "peers": ("harness", "Compare this harness with others on the same work."),
    "figures": ("figures", "Draw every chart of a run."),
    "site": ("figures", "Write the notebooks, the panel and the ladder as web pages."),
    "journal": ("figures", "Print what you predicted beside what was measured, as Markdown."),
    "article": ("figures", "Regenerate the article: its figures and its table."),
}
COMPLETION = 'Enable shell completion: eval "$(_WORKLOG_COMPLETE=bash_source worklog)"'


class Commands(click.Group):
    """The commands.

    A command's module is imported when the command is used. An error that a user can act on is
    printed as one line, without a traceback: this package's errors and warnings, and an interrupt.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program, whatever its standard streams are."""
        with usable_streams():
            return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of use."""
        return [*COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name.

        An unknown name is a usage error with the nearest name.
        """
        if cmd_name == "check":
            # Before NumPy is loaded: in the gate's small products, BLAS threads only wait.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        if cmd_name in COMMANDS:
            with ExitOnInterrupt():
                module = import_module(f"worklog.cli.{COMMANDS[cmd_name][0]}")
            command: click.Command = getattr(module, cmd_name)
            return command
        if not ctx.resilient_parsing and not cmd_name.startswith("-"):
            ctx.fail(f"No such command {cmd_name!r}.{meant(cmd_name, COMMANDS)}")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list for --help, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments, which a run's file states.

        A name that isn't UTF-8 is a usage error.
        """
        ctx.obj = tuple(args)
        try:
            "".join(args).encode()
        except UnicodeEncodeError:
            ctx.fail("an argument isn't UTF-8: rename the file, or set LC_ALL=C.UTF-8")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A WorklogError becomes its message and exit code."""
        COMMAND.set(ctx.obj)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _print_warning
                _require_current_folder()
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            option = error.option_name
            advice = self._advice(ctx, option, error.ctx.info_name if error.ctx else None)
            raise click.NoSuchOption(  # without click's own advice, which is --help for --l2
                option, f"No such option {option}. {advice}".strip(), ctx=error.ctx
            ) from error
        except WorklogError as error:
            text = str(error)
            exit_code = error.exit_code
            notes = getattr(error, "__notes__", [])
        except KeyboardInterrupt as error:
            from worklog.runs.files import written_so_far  # here: --help needs no NumPy

            text = f"interrupted: {written_so_far()}"
            exit_code = Interrupted.exit_code
            notes = getattr(error, "__notes__", [])
        click.echo("\n".join([f"worklog: {text}", *notes]), err=True)
        ctx.exit(exit_code)

    def _advice(self, ctx: click.Context, option: str, command: str | None) -> str:
        """Return what to type instead of an option that a command doesn't have."""
        flags = self._options(ctx, command or "")
        setting = option.lstrip("-").replace("-", "_")
        if setting in Harness().as_dict():
            value = _value_of(option, ctx.obj) or "VALUE"
            advice = f"It is a setting of the harness: give --set {setting}={value}"
            if "--set" in flags:
                return f"{advice}."
            return f"{advice} to a command that times, as worklog run does."
        flag_of = {flag.lstrip("-"): flag for flag in flags}
        matches = get_close_matches(option.lstrip("-"), flag_of, 1)
        if matches:
            return f"Did you mean {flag_of[matches[0]]}?"
        commands = [name for name in COMMANDS if option in self._options(ctx, name)]
        return f"It is an option of {', '.join(commands)}." if commands else ""

    def _options(self, ctx: click.Context, name: str) -> list[str]:
        """Return the flags of a command; none for an unknown command."""
        command = self.get_command(ctx, name) if name in COMMANDS else None
        flags: list[str] = []
        if command is not None:
            for option in command.params:
                flags += option.opts
        return flags


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without its place in the source."""
    click.echo(f"worklog: {message}", err=True)


def _value_of(option: str, arguments: tuple[str, ...]) -> str:
    """Return the value of an option in the arguments of a command; "" if it has none."""
    for argument, following in pairwise((*arguments, "")):
        name, _, value = argument.partition("=")
        if name == option:
            return value or following
    return ""


def _require_current_folder() -> None:
    """Raise BadSetting if the current folder is gone."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise BadSetting("the current folder doesn't exist any more: cd to another one") from error


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=COMPLETION
)
@click.version_option(__version__, prog_name="worklog")
def main() -> None:
    """Check and time SGEMM kernels on NVIDIA GPUs beside cuBLAS, and draw the charts."""
