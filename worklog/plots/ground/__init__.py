"""Pictures of the hardware for notebook 03, which introduces its terms.

From the grid to a lane, what a request touches, the memories, and warps that wait.
"""

from worklog.plots.ground.grid import grid
from worklog.plots.ground.memories import memories
from worklog.plots.ground.touched import touched
from worklog.plots.ground.waiting import waiting

__all__ = ["grid", "memories", "touched", "waiting"]
