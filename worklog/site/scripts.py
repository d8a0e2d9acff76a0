"""The scripts of the site's pages: the files that each script consists of, in order.

A file uses the names of the files before it. tests/javascript.py checks each script as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from worklog.lab import assets
from worklog.lab.assets import ACCESS_SCRIPTS, BET_SCRIPTS, PANEL_SCRIPTS


@dataclass(frozen=True)
class Script:
    """Files that make one script."""

    of_lab: tuple[str, ...]  # in worklog/lab
    of_site: tuple[str, ...]  # in worklog/site, after those of the lab

    @property
    def files(self) -> list[Path]:
        """The files, in order."""
        lab = Path(assets.__file__).parent
        site = Path(__file__).parent
        return [*(lab / name for name in self.of_lab), *(site / name for name in self.of_site)]

    def text(self) -> str:
        """Return the script without its comments."""
        texts = [path.read_text(encoding="utf-8") for path in self.files]
        return "\n\n".join(map(assets.without_comments, texts))


EMULATOR_SCRIPTS = ("records.js", "emulator.js")
RUNNING_SCRIPTS = ("loading.js", *EMULATOR_SCRIPTS, "programs.js")  # of pages that run kernels

# Of a page whose text has widgets or a table of contents.
READER = Script(("dom.js",), ("loading.js", "reader.js"))
ACCESS = Script(ACCESS_SCRIPTS, ())
LIVE = Script(ACCESS_SCRIPTS, (*RUNNING_SCRIPTS, "picture.js", "live.js"))
PUZZLES = Script(("dom.js",), (*RUNNING_SCRIPTS, "puzzles.js"))
EMULATOR = Script((), EMULATOR_SCRIPTS)
WORKER = Script((), ("records.js", "findings.js", "trace.js", "product.js", "core.js"))
# Of the widgets in the text of a page.
WIDGETS = {
    "access": Script(ACCESS_SCRIPTS, ("show_access.js",)),
    "panel": Script(PANEL_SCRIPTS, ("show_panel.js",)),
    "bet": Script(BET_SCRIPTS, ("show_bet.js",)),
}
# Of a live site; a reader asks for it.
LIVE_WIDGET = Script(LIVE.of_lab, (*LIVE.of_site, "show_live.js"))
