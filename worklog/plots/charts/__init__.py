"""A module for each chart: what it selects of a run, its texts, and how marks draw it.

A chart selects numbers and states its texts. The marks of `worklog/plots/marks/` draw the numbers:
`Rows` of bars, `Line`s, the `Cells` of a map, names of points, texts and scales. `page.py` puts
title, subtitle and sources around them. For example, the registers of each rung as rows of bars:

    from matplotlib.axes import Axes

    from worklog.errors import NothingToDraw
    from worklog.plots import style
    from worklog.plots.marks import RowBar, Rows
    from worklog.plots.page import Chart, Margins, Texts, on_axes
    from worklog.runs import Run


    @style.chart
    def registers(run: Run, *, ax: Axes | None = None) -> Axes | Chart:
        \"\"\"Draw the registers of each rung. Raises NothingToDraw.\"\"\"
        counts = {
            name: facts["registers"] for name, facts in run.kernels.items() if "registers" in facts
        }
        if not counts:
            raise NothingToDraw("the run has no compiled kernel: make one with `worklog run`")
        most = max(counts, key=lambda name: counts[name])
        rows = Rows(list(counts), pitch=0.24)
        texts = Texts(
            "registers",
            finding=f"{most} needs most registers, {counts[most]} per thread",
            subtitle="Registers per thread, as compiled.",
            footer=[run.full_label],
            alt=["Bar chart of registers", *(f"{name}: {count}" for name, count in counts.items())],
        )

        def draw(axes: Axes) -> None:
            axes.set(xlim=(0, 1.1 * counts[most]), xlabel="registers per thread")
            rows.draw(axes, [RowBar(count, str(count)) for count in counts.values()])

        return on_axes(ax, draw, texts, height=rows.height, margins=Margins(left=rows.left))
"""
