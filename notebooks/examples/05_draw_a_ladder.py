"""Draw the ladder of a run as ladder.svg and ladder.png, light and dark, in the current folder.

The run is the file given on the command line, else the newest of this machine at 4096, else the recording.
"""

import sys
from pathlib import Path

import worklog

run = worklog.open_run(*sys.argv[1:2], shape=4096)
chart = worklog.plots.ladder(run, 4096)
for path in worklog.plots.save(chart, Path("ladder")):
    print(path)
print(chart.alt)  # what the chart shows, in words, with its source
