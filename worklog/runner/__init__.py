"""Jobs, and their path through the gate and the harness into a run.

`measure` and `timing` hold the public calls. A job is carried out in a child process (`execute`,
`child`, `worker`): it is prepared (`prepare`), timed and becomes a measurement (`prepared`).
"""
