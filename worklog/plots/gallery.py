"""All charts of a run, as files in a folder with a page of them.

The page is Markdown named README.md, which a repository shows with the folder.
"""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from worklog.errors import NotDrawn, NothingToDraw, WorklogError
from worklog.plots.drawing import Drawing, rendered, write_figure
from worklog.plots.registry import charts_of
from worklog.runs import Run
from worklog.runs.files import write_bytes
from worklog.runs.text import Progress, silent


@dataclass(frozen=True)
class Attempt:
    """The result of drawing one chart."""

    chart: Drawing | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)  # by the end of their names
    missing: str = ""  # what the run lacks for the chart
    failed: str = ""  # the exception that was raised


def attempt(draw: Callable[[], Drawing]) -> Attempt:
    """Draw a chart and render its files. An exception is a result."""
    try:
        chart = draw()
        return Attempt(chart, rendered(chart))
    except NothingToDraw as nothing:
        return Attempt(missing=str(nothing))
    except Exception as error:  # any: the other charts don't depend on it
        return Attempt(failed=_reason(error))


@dataclass
class Drawn:
    """The result of `draw_all`."""

    charts: dict[str, Drawing] = field(default_factory=dict)  # by name
    paths: list[Path] = field(default_factory=list)  # of the charts' files
    missing: dict[str, str] = field(default_factory=dict)  # what the run lacks for a chart
    failed: dict[str, str] = field(default_factory=dict)  # the exception that a chart raised
    gallery: Path | None = None  # the page that shows the charts, if one was written
    source: Path | None = None  # the run's file, if it has one

    def add(self, name: str, result: Attempt, out: Path) -> None:
        """Write the files of a chart into the folder.

        Raises BadRunFile if a file can't be written.
        """
        if result.chart is not None:
            self.charts[name] = result.chart
            self.paths.extend(write_figure(result.files, out / name))
        elif result.failed:
            self.failed[name] = result.failed
        else:
            self.missing[name] = result.missing

    def require_whole(self) -> None:
        """Raise NotDrawn if a figure failed.

        The error names each failed figure, its reason and the run's file.
        """
        if not self.failed:
            return
        figures = "figures" if len(self.failed) > 1 else "figure"
        lines = [f"{len(self.failed)} {figures} could not be drawn, which is a fault of worklog:"]
        lines += [f"  {name}: {reason}" for name, reason in self.failed.items()]
        if self.source is not None:
            command = f"worklog figures --run {shlex.quote(str(self.source))}"
            lines.append(f"the run is saved, and `{command}` draws it again: {self.source}")
        raise NotDrawn("\n".join(lines))


def draw_all(
    run: Run,
    out: Path,
    extra_charts: Mapping[str, Callable[[], Drawing]] | None = None,
    earlier: Drawn | None = None,
    *,
    progress: Progress = silent,
    pool: Executor | None = None,
) -> Drawn:
    """Draw every chart that the run has the measurements for, and a page of them.

    Each chart is written as SVG and PNG, light and dark.

    run: its charts are the registry's, its ablations, and the lines of its benchmarks
    out: the folder
    extra_charts: by name, charts that don't come from a run, or that replace the run's
    earlier: the charts that were drawn into the folder before, and aren't drawn again
    progress: called before each chart
    pool: draws the charts, which must be picklable; by default they are drawn here

    A chart that raises an exception is named in the result, and the others are drawn. Raises
    BadRunFile if the folder can't be written.
    """
    drawn = Drawn() if earlier is None else earlier
    drawn.source = run.path
    finished = {*drawn.charts, *drawn.missing, *drawn.failed}
    charts = charts_of(run) | dict(extra_charts or {})
    unfinished = {name: draw for name, draw in charts.items() if name not in finished}
    run_all = map if pool is None else pool.map
    results = iter(run_all(attempt, unfinished.values()))
    for number, name in enumerate(unfinished):
        progress(number, len(unfinished), f"figure {name}")
        drawn.add(name, next(results), out)
    in_page_order = {name: drawn.charts[name] for name in charts if name in drawn.charts}
    drawn.gallery = write_gallery(in_page_order, drawn.missing | drawn.failed, out)
    return drawn


def _reason(error: Exception) -> str:
    """Describe an exception in one line. Worklog's own errors need no type and place."""
    if isinstance(error, WorklogError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message} ({Path(place.filename).name}:{place.lineno})"


BEGIN = "<!-- written by `worklog figures` and `worklog article`"
# Heading, picture in the palette of the reader's page, alt text, and links to the SVGs.
FIGURE = """\
### {headline}

<picture><source media="(prefers-color-scheme: dark)" srcset="{name}_dark.png">\
<img src="{name}.png" width="700" alt="{alt}"></picture>

<details><summary>In words · <a href="{name}.svg">SVG</a>, \
<a href="{name}_dark.svg">dark</a></summary>

{alt_text}

</details>"""


def write_gallery(
    charts: Mapping[str, Drawing], missing: Mapping[str, str], folder: Path
) -> Path | None:
    """Write README.md into the folder of the figures; return its path.

    The page has the article's diagrams, the charts, and the reasons why others are missing. Returns
    None and writes nothing if there is no chart, or if the folder has a README.md from another
    source. Raises BadRunFile if the file can't be written.

    charts: by name, in the page's order
    missing: the reason by the chart's name
    """
    path = folder / "README.md"
    if not charts or (path.exists() and not path.read_bytes().startswith(BEGIN.encode())):
        return None
    diagram_sections = ["## The article's diagrams, with this machine's numbers"]
    chart_sections = ["## The charts"]
    for name, chart in charts.items():
        section = FIGURE.format(
            name=name,
            headline=escape(chart.headline, False),
            alt_text=chart.table(),
            alt=escape(chart.summary),
        )
        if name.startswith("diagram_"):
            diagram_sections.append(section)
        else:
            chart_sections.append(section)
    page = [f"{BEGIN}, which overwrite it -->", "# The figures"]
    for sections in (diagram_sections, chart_sections):
        if len(sections) > 1:
            page += sections
    page += [f"Not drawn: `{name}`, {reason}" for name, reason in missing.items()]
    write_bytes(path, ("\n\n".join(page) + "\n").encode())
    return path
