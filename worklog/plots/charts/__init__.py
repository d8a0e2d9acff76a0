"""One module a chart: what it takes from a run, how it is drawn on axes, and the page around it."""
