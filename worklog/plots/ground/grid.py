"""From the grid to a lane: the blocks of a kernel, the warps of a block, the lanes of a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from worklog.errors import NothingToDraw
from worklog.plots import style
from worklog.plots.charts.ownership import WARP, first_block
from worklog.plots.marks import Cell, Cells, areas, fill
from worklog.plots.page import Chart, Texts, page
from worklog.plots.style import (
    ACCENT,
    BODY_PT,
    FAINT,
    INK,
    MARGIN_IN,
    MUTED,
    PAPER,
    TINT,
    WIDTH_IN,
)
from worklog.problem import FLOAT_BYTES

if TYPE_CHECKING:
    from worklog.viewer.accesses import AccessTrace

# inches
SIDE = 2.08  # of the pictures of C and of a block
GAP = 0.25  # between two pictures
HEAD = 0.22  # above a picture
BELOW = 0.36
LANE_ROWS = 16
LANE_COLUMNS = WARP // LANE_ROWS
LANES_LEFT = MARGIN_IN + 2 * (SIDE + GAP)
WARP_SHADE = 0.3


class BlockGrid(NamedTuple):
    """The grid of a launch, and its first block."""

    kernel: str
    threads: int  # of a block
    size: tuple[int, int]  # rows and columns of C
    tile: tuple[int, int]  # rows and columns of a block
    owners: NDArray[np.int64]  # the thread that stores each element of the first block, or -1
    # The element that each lane of the first warp stores: row and column. Of several, the first.
    lanes: list[tuple[int, int]]

    @property
    def blocks(self) -> tuple[int, int]:
        """The rows and columns of blocks."""
        rows, columns = self.size
        tile_rows, tile_columns = self.tile
        return -(-rows // tile_rows), -(-columns // tile_columns)

    @property
    def bytes(self) -> list[int]:
        """The distance of each lane's element from the start of C."""
        return [FLOAT_BYTES * (row * self.size[1] + column) for row, column in self.lanes]


@style.chart
def grid(traced: AccessTrace) -> Chart:
    """Draw the blocks of C, the warps of a block, and the lanes of a warp.

    They are the first block and its first warp. Each lane has the element of C that it stores, and
    its distance from the start of C. Raises NothingToDraw if a lane of that warp stores nothing.
    """
    launch = _launch(traced)
    chart = page(
        Texts(
            "grid",
            finding=_finding(launch),
            subtitle=(
                "Left, C and the blocks that compute it; middle, the first block and its warps; "
                "right, the lanes of its first warp, each with the element of C that it stores and "
                "the byte at which the element starts."
            ),
            footer=[traced.label],
            alt=_alt(launch),
        ),
        HEAD + SIDE + BELOW,
    )
    _draw_blocks(chart, launch)
    _draw_warps(chart, launch)
    _draw_lanes(chart, launch)
    return chart


def _launch(traced: AccessTrace) -> BlockGrid:
    """Return what is drawn of a trace."""
    owners, _ = first_block(traced)
    rows, columns = owners.shape
    lanes = list[tuple[int, int]]()
    for lane in range(WARP):
        places = np.argwhere(owners == lane)
        if not len(places):
            raise NothingToDraw(f"{traced.kernel.name}: thread {lane} stores no element of C")
        lanes.append((int(places[0][0]), int(places[0][1])))
    m, n, *_ = traced.document["matrices"]["C"]
    return BlockGrid(
        traced.kernel.name, traced.kernel.thread_count, (m, n), (rows, columns), owners, lanes
    )


def _finding(launch: BlockGrid) -> str:
    """Return how far apart neighbouring lanes store."""
    first, second, *_ = launch.bytes
    return f"{launch.kernel}: two neighbouring lanes store {second - first} bytes apart"


def _alt(launch: BlockGrid) -> list[str]:
    """Return the alt text: the grid, the block, and each lane's element and byte."""
    lanes = [
        f"lane {lane}: C[{row}][{column}], byte {byte}"
        for lane, ((row, column), byte) in enumerate(zip(launch.lanes, launch.bytes, strict=True))
    ]
    return ["A grid of blocks, a block of warps, a warp of lanes", *_sizes(launch), *lanes]


def _sizes(launch: BlockGrid) -> list[str]:
    """Return the sizes of the grid, of a block and of a warp."""
    grid_rows, grid_columns = launch.blocks
    return [
        f"grid: {grid_rows} × {grid_columns} blocks",
        f"block 0, 0: {launch.threads} threads, {launch.threads // WARP} warps",
        f"warp 0: {WARP} lanes",
    ]


def _draw_blocks(chart: Chart, launch: BlockGrid) -> None:
    """Draw C with a cell for each block, the first one shaded."""
    grid_rows, grid_columns = launch.blocks
    head, *_ = _sizes(launch)
    bottom = _draw_head(chart, MARGIN_IN, head)
    axes = chart.axes_at(MARGIN_IN, bottom, SIDE, SIDE)
    axes.set(xlim=(0, grid_columns), ylim=(grid_rows, 0))
    axes.set_axis_off()
    cells = Cells(1.0, 1.0, x_gap=0.04, y_gap=0.04, outline=MUTED)
    for row in range(grid_rows):
        for column in range(grid_columns):
            is_first = row == column == 0
            text = f"{row}, {column}" if max(launch.blocks) <= 4 else ""
            cells.draw_cell(axes, row, column, Cell(text, TINT if is_first else PAPER))
    rows, columns = launch.size
    tile_rows, tile_columns = launch.tile
    below = [f"C: {rows} × {columns} floats", f"a block: {tile_rows} × {tile_columns} of them"]
    chart.write((MARGIN_IN, bottom - 0.05), below, color=MUTED)


def _draw_warps(chart: Chart, launch: BlockGrid) -> None:
    """Draw the first block: every second warp is grey, the first warp pale, its lane 0 full."""
    _, head, _ = _sizes(launch)
    left = MARGIN_IN + SIDE + GAP
    bottom = _draw_head(chart, left, head)
    axes = chart.axes_at(left, bottom, SIDE, SIDE)
    rows, columns = launch.tile
    axes.set(xlim=(0, columns), ylim=(rows, 0), xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    warps = launch.owners // WARP
    fill(axes, areas(warps % 2 == 1), FAINT)
    fill(axes, areas(warps == 0), ACCENT, WARP_SHADE)
    fill(axes, areas(launch.owners == 0), ACCENT)
    below = ["blue: warp 0, its lane 0 dark;", "grey: every second warp"]
    chart.write((left, bottom - 0.05), below, color=MUTED)


def _draw_lanes(chart: Chart, launch: BlockGrid) -> None:
    """Draw a cell for each lane of the first warp, with its element of C and its byte."""
    *_, head = _sizes(launch)
    bottom = _draw_head(chart, LANES_LEFT, head)
    width = WIDTH_IN - MARGIN_IN - LANES_LEFT
    axes = chart.axes_at(LANES_LEFT, bottom, width, SIDE)
    axes.set(xlim=(0, LANE_COLUMNS), ylim=(LANE_ROWS, 0))
    axes.set_axis_off()
    cells = Cells(1.0, 1.0, x_gap=0.06, y_gap=0.12)
    for lane, (row, column) in enumerate(launch.lanes):
        text = f"{lane}: [{row}][{column}], {launch.bytes[lane]}"
        cells.draw_cell(axes, lane % LANE_ROWS, lane // LANE_ROWS, Cell(text, TINT))
    below = ["each lane: [row][column] of its", "element, and the byte in C"]
    chart.write((LANES_LEFT, bottom - 0.05), below, color=MUTED)


def _draw_head(chart: Chart, left: float, text: str) -> float:
    """Write the head of a picture. Return the lower edge of the picture."""
    chart.write((left, chart.body_top), [text], BODY_PT, color=INK, weight="bold")
    return chart.body_top - HEAD - SIDE
