"""The hub's configuration: as Zero to JupyterHub runs it, as small as it gets."""

import json
import os

# The scenario's own figures: addresses, images, selector.
SETTINGS = json.loads(os.environ["HUB_SETTINGS"])

c = get_config()  # noqa: F821, given by JupyterHub
c.JupyterHub.bind_url = f"http://{SETTINGS['proxy']}:8000"
c.JupyterHub.hub_bind_url = "http://0.0.0.0:8081"
c.JupyterHub.hub_connect_url = f"http://{SETTINGS['node']}:8081"
c.JupyterHub.db_url = "sqlite:////tmp/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = "/tmp/cookie_secret"
c.JupyterHub.cleanup_servers = False
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"http://{SETTINGS['proxy']}:8001"

c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{"name": "scenario", "api_token": SETTINGS["token"]}]
c.JupyterHub.load_roles = [
    {"name": "scenario", "services": ["scenario"],
     "scopes": ["admin:users", "admin:servers", "read:hub"]},
]

c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.KubeSpawner.namespace = SETTINGS["namespace"]
c.KubeSpawner.events_enabled = True
c.KubeSpawner.start_timeout = SETTINGS["start_timeout"]
c.KubeSpawner.http_timeout = 60
c.KubeSpawner.node_selector = SETTINGS["selector"]
c.KubeSpawner.extra_labels = {"app": "jupyterhub"}
c.KubeSpawner.extra_pod_config = {"hostNetwork": True, "enableServiceLinks": False}
c.KubeSpawner.cmd = ["/usr/bin/python3", "-m", "jupyterhub.singleuser", "--allow-root"]
c.KubeSpawner.environment = {"JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp"}


def choose(spawner):
    """The image and a port of the node by the user's name."""
    name = spawner.user.name
    spawner.image = SETTINGS["images"][name]
    spawner.port = SETTINGS["ports"][name]


c.KubeSpawner.pre_spawn_hook = choose
