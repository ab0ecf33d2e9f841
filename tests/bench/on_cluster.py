"""The real cluster of tests/cluster, for a benchmark: control plane, one node, an observer.

    with on_cluster.run(scenario, agent) as play:
        play.start_agent()

The calling process is in the control plane's network afterwards, so it plays nothing else.
"""

import contextlib
import os
import signal
import sys

import one_bench

sys.path.insert(0, os.path.join(one_bench.ROOT, "tests", "cluster"))

import components  # noqa: E402
import host  # noqa: E402
import lab as lab_module  # noqa: E402
from scenario import GUARDED, Run  # noqa: E402


def leave(number, _frame):
    sys.exit(128 + number)


@contextlib.contextmanager
def run(scenario, agent, lab_class=lab_module.Lab):
    """A Run of tests/cluster with its node up; everything is taken down at the end."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    binaries = components.build(one_bench.say)
    host.sweep_orphans(one_bench.say)
    folder = host.new_run_folder()
    logs = os.path.join(components.cache_folder(), "runs", f"bench-{scenario.name}")
    os.makedirs(logs, exist_ok=True)
    lab = play = None
    try:
        lab = lab_class(folder, logs, binaries, one_bench.say)
        lab.up()
        play = Run(lab, scenario, GUARDED, agent, one_bench.say)
        play.prepare()
        yield play
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if play is not None:
            play.down()
        if lab is not None:
            lab.down()
        host.sweep(folder)


def bound_pod(play, name, reference, arguments=()):
    """A pod that is on the node at once: no scheduler, so that no taint keeps it away."""
    spec = {
        "nodeName": play.node.name,
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": reference, "args": list(arguments)}],
    }
    play.lab.kube.apply_all([{
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "namespace": play.namespace}}])


def delete_pod(play, name):
    play.lab.kube.delete(f"/api/v1/namespaces/{play.namespace}/pods/{name}", gracePeriodSeconds=1)
