"""Which node a pod is tried on first, and the policy of the scenarios that drain."""

from node import NodeSpec

# Of the Prefect flow's image: 110 MiB compressed and 349 unpacked don't fit 365 MiB.
SMALL = NodeSpec(disk_mib=400)
LARGE = NodeSpec(disk_mib=2560)
# The taint outlasts the Job controller's own back-off after a pod that failed (10 s): see agent.py.
DRAIN = {"drain": {"enabled": True}, "clearAfter": "30s"}


def prefer(*nodes):
    """An affinity that makes the scheduler try these nodes first, and others if it may not."""
    return {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "preference": {"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In",
                     "values": [getattr(node, "name", node) for node in nodes]},
                ]},
            }],
        },
    }


def node_of(pod):
    return pod.pod["spec"].get("nodeName")
