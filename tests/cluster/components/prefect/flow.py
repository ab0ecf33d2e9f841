"""The flow that the scenarios run: it counts its executions where no pod's end can undo it."""

import os
import threading

from prefect import flow
from prefect.runtime import flow_run


@flow
def count(folder="/executions", seconds=1):
    """Appends one line per execution: a run that is executed twice has two."""
    line = f"{flow_run.get_id()} {os.uname().nodename} {os.getpid()}\n".encode()
    file = os.open(os.path.join(folder, "executions"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)
    threading.Event().wait(seconds)  # for as long as a real flow would work
