"""Which node a pod is tried on first, and the policy of the scenarios that drain."""

# The taint outlasts the Job controller's own back-off after a pod that failed (10 s): see agent.py.
DRAIN = {"drain": {"enabled": True}, "clearAfter": "30s"}


def prefer(node):
    """An affinity that makes the scheduler try this node first, and others if it may not."""
    return {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "preference": {"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]},
                ]},
            }],
        },
    }


def node_of(pod):
    return pod.pod["spec"].get("nodeName")
