"""The pods that must not suffer: those the kubelet put out in nebari-dev/nebari#707."""

# What each has written says in which order the kubelet prefers to evict them; the hub's database
# is the largest, so it goes first, as it did.
LABELS = {
    "hub": {"app": "jupyterhub", "component": "hub", "release": "nebari"},
    "traefik": {"app.kubernetes.io/name": "traefik", "app.kubernetes.io/instance": "nebari"},
    "user-scheduler": {"app": "jupyterhub", "component": "user-scheduler", "release": "nebari"},
}
WRITTEN = {"hub": 8 << 20, "traefik": 1 << 20, "user-scheduler": 256 << 10}
NAMES = tuple(LABELS)


def start(run):
    """Starts all of them and waits until they run and the kubelet knows what they have written."""
    for name in NAMES:
        run.add_deployment(name, LABELS[name], ["write", "/data.db", str(WRITTEN[name])])
    run.wait_running(*NAMES)


def note_evictions(run, since):
    """Fills in how many of them were evicted, and how soon after `since`."""
    evicted = run.observer.evicted_apps(NAMES)
    run.results["protected_evicted"] = len(evicted)
    first = run.observer.first_eviction(NAMES)
    if first is not None:
        run.results["first_eviction_s"] = round(first - since, 1)
        run.note("evicted: " + ", ".join(evicted))
