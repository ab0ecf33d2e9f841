"""A real Prefect: its server in the lab, a worker and a work pool per run, a flow in an image.

The server is started when it is first needed and stays for the other scenarios; its database is
the run's own. Everything is asked for over its HTTP API, so that the harness needs no package.
"""

import hashlib
import http.client
import json
import os
import shutil
import time
import uuid

import components
import host
import image_layers
import lab as lab_module
import python_tools
from errors import Broken
from observer import APP_LABEL
from processes import Process, let_pass, run, wait_until

NAME = "prefect"
LEGACY = "prefect-legacy"  # with a worker that gives up on a pod that does not start
PORTS = {NAME: 4200, LEGACY: 4201}
SHIPPED_TEMPLATE = os.path.join(lab_module.ROOT, "daemonset", "prefect", "base-job-template.json")
FLOW = os.path.join(lab_module.HERE, "components", NAME, "flow.py")
INSIDE = "opt/prefect"  # the packages, in the image
EXECUTIONS = "/executions"  # a folder of the machine, in the container
STOCK = """
import json
from prefect_kubernetes.worker import KubernetesWorker
print(json.dumps(KubernetesWorker.get_default_base_job_template()))
"""
DATABASE = "prefect.db"
BUSY_ATTEMPTS = 20
ENV = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_COLORS": "false",
    "DO_NOT_TRACK": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def url_of(tool):
    return f"http://{lab_module.ADDRESS}:{PORTS[tool]}/api"


def flow_image(tool=NAME):
    """Python, Prefect and the flow: 400 MiB in 20,000 files, as real images of flows are."""
    packages = python_tools.folder_of(tool)
    start = "#!/usr/bin/python3\nimport sys\nfrom prefect.cli import app\nsys.exit(app())\n"
    flow = os.path.join(packages, "flow")
    os.makedirs(os.path.join(flow, "usr", "local", "bin"), exist_ok=True)
    for folder in ("opt/flow", "tmp", EXECUTIONS.strip("/")):
        os.makedirs(os.path.join(flow, folder), exist_ok=True)
    with open(FLOW, encoding="utf-8") as f:
        text = f.read()
    for path, content in (("opt/flow/flow.py", text), ("usr/local/bin/prefect", start)):
        with open(os.path.join(flow, path), "w", encoding="utf-8") as f:
            f.write(content)
        os.chmod(os.path.join(flow, path), 0o755)
    key = hashlib.sha256((packages + text + start).encode()).hexdigest()
    return image_layers.FilesSpec(
        f"{tool}-flow", key,
        (
            ("cat", os.path.join(packages, "root.tar")),
            image_layers.tar_of(python_tools.site_packages(tool), INSIDE),
            image_layers.tar_of(flow, ""),
        ),
        (
            ("Env", ("PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHONPATH=/{INSIDE}", "HOME=/tmp",
                     "LANG=C.UTF-8")),
            ("WorkingDir", "/opt/flow"),
        ),
    )


class Server:
    """The server with its database; one for all runs of a lab."""

    def __init__(self, lab, tool):
        self.lab, self.tool = lab, tool
        self.folder = os.path.join(lab.folder, tool)
        self.stock_template = None

    def start(self):
        started = time.monotonic()
        os.makedirs(self.folder)
        with components.locked(self.lab.image_cache):
            self.make_once()
        made = python_tools.folder_of(self.tool)
        shutil.copy(os.path.join(made, DATABASE), self.folder)
        with open(os.path.join(made, "stock.json"), encoding="utf-8") as f:
            self.stock_template = json.load(f)
        process = self.lab.start(
            f"{self.tool}-server",
            ["server", "start", "--host", lab_module.ADDRESS, "--port", PORTS[self.tool],
             "--no-ui"],
            binary=python_tools.program(self.tool, "prefect"),
            env={**ENV, "PREFECT_HOME": self.folder, "PREFECT_UI_ENABLED": "false"},
        )
        process.wait_ready(self.ready, 120)
        self.lab.say(f"{self.tool} server up in {time.monotonic() - started:.0f} s")
        return self

    def make_once(self):
        """An empty database takes 15 s to make, Prefect's own base job template 3 s: kept."""
        folder = python_tools.folder_of(self.tool)
        stock, database = os.path.join(folder, "stock.json"), os.path.join(folder, DATABASE)
        env = {**os.environ, **ENV, "PREFECT_HOME": self.folder}
        if not os.path.exists(stock):
            text = run(python_tools.program(self.tool, "python"), "-I", "-c", STOCK, env=env)
            host.write(stock, text)
        if not os.path.exists(database):
            run(python_tools.program(self.tool, "prefect"), "server", "database", "upgrade",
                "--yes", env=env)
            shutil.move(os.path.join(self.folder, DATABASE), database)

    def ready(self):
        try:
            return self.request("GET", "/health") is True
        except (OSError, http.client.HTTPException, Broken):
            return False

    def request(self, method, path, body=None):
        """The decoded answer. 503 is its database being busy: asked again, as its client does."""
        for attempt in range(BUSY_ATTEMPTS):
            status, text = self.ask(method, path, body)
            if status != 503 or attempt == BUSY_ATTEMPTS - 1:
                break
            let_pass(0.5)
        if status >= 300:
            raise Broken(f"Prefect answered {status} to {method} {path}: {text[:200]!r}")
        return json.loads(text) if text else None

    def ask(self, method, path, body):
        connection = http.client.HTTPConnection(lab_module.ADDRESS, PORTS[self.tool], timeout=30)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, "/api" + path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def server_of(lab, tool):
    """The lab's server of this version, started when it is first asked for."""
    if tool not in lab.prefect_servers:
        lab.prefect_servers[tool] = Server(lab, tool).start()
    return lab.prefect_servers[tool]


class Pool:
    """A work pool with its worker, and one deployment of the flow, for one run of a scenario."""

    def __init__(self, run_, template=None, tool=NAME, **variables):
        """`template` is None for Prefect's own base job template; `variables` are more of its."""
        self.run, self.lab = run_, run_.lab
        self.tool = tool
        self.server = server_of(self.lab, tool)
        self.name = f"pool-{run_.namespace}"  # Prefect keeps names that begin with its own
        self.template, self.variables = template, variables
        self.folder = os.path.join(self.lab.folder, f"{tool}-{self.name}")
        self.worker = self.deployment = None

    def start(self, affinity=None):
        os.makedirs(self.folder)
        self.run.at_end.append(self.stop)
        open(os.path.join(self.folder, "executions"), "w", encoding="utf-8").close()
        self.server.request("POST", "/work_pools/", {
            "name": self.name,
            "type": "kubernetes",
            "base_job_template": self.fitted_template(affinity),
        })
        self.worker = Process(
            "prefect-worker",
            [python_tools.program(self.tool, "prefect"), "worker", "start", "--pool", self.name,
             "--type", "kubernetes"],
            os.path.join(self.run.logs, "prefect-worker.log"),
            netns=self.lab.netns,
            cgroups=self.lab.group(),
            env={**ENV, "KUBECONFIG": self.lab.kubeconfig, "PREFECT_API_URL": url_of(self.tool),
                 "PREFECT_HOME": self.folder, "PREFECT_WORKER_QUERY_SECONDS": "1",
                 "PREFECT_INTEGRATIONS_KUBERNETES_OBSERVER_NAMESPACES": self.run.namespace},
        ).start()
        self.lab.processes.append(self.worker)
        self.deployment = self.deploy()
        self.worker.wait_ready(self.is_polled, 90)
        return self

    def is_polled(self):
        return self.server.request("POST", f"/work_pools/{self.name}/workers/filter", {})

    def fitted_template(self, affinity):
        """The template with what this lab's pods need: the node's own network, a folder."""
        template = self.server.stock_template
        if self.template:
            with open(self.template, encoding="utf-8") as f:
                template = json.load(f)
        template = json.loads(json.dumps(template))
        pod = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]
        pod.update(
            hostNetwork=True,
            enableServiceLinks=False,
            automountServiceAccountToken=False,
            nodeSelector=self.run.selector(),
            volumes=[{"name": "executions", "hostPath": {"path": self.folder}}],
        )
        if affinity:
            pod["affinity"] = affinity
        # A class of this name is not part of the lab.
        pod.pop("priorityClassName", None)
        pod["containers"][0]["volumeMounts"] = [{"name": "executions", "mountPath": EXECUTIONS}]
        return template

    def deploy(self):
        flow = self.server.request("POST", "/flows/", {"name": f"count-{self.name}"})
        return self.server.request("POST", "/deployments/", {
            "name": self.name,
            "flow_id": flow["id"],
            "entrypoint": "flow.py:count",
            "path": "/opt/flow",
            "work_pool_name": self.name,
            "enforce_parameter_schema": False,
            "job_variables": {
                "image": self.run.image(flow_image(self.tool)).reference,
                "namespace": self.run.namespace,
                "image_pull_policy": "IfNotPresent",
                "labels": {APP_LABEL: "flow"},
                "env": {"PREFECT_API_URL": url_of(self.tool), "PREFECT_HOME": "/tmp/prefect"},
                **self.variables,
            },
        })

    def start_run(self, **parameters):
        """Returns the flow run's id."""
        return self.server.request(
            "POST", f"/deployments/{self.deployment['id']}/create_flow_run",
            {"parameters": parameters, "idempotency_key": str(uuid.uuid4()),
             "state": {"type": "SCHEDULED"}},
        )["id"]

    def state(self, flow_run):
        return self.server.request("GET", f"/flow_runs/{flow_run}")["state"]["type"]

    def wait_state(self, flow_run, states, seconds):
        def reached():
            self.worker.require_alive()
            state = self.state(flow_run)
            return state in states and state

        return wait_until(reached, seconds, f"the flow run getting {' or '.join(states)}", 0.3)

    def history(self, flow_run):
        """The types of all its states, in order, repetitions left out."""
        states = self.server.request("GET", f"/flow_run_states/?flow_run_id={flow_run}")
        types = [s["type"] for s in sorted(states, key=lambda s: s["timestamp"])]
        return [t for i, t in enumerate(types) if i == 0 or t != types[i - 1]]

    def executions(self, flow_run):
        """How often the flow's code was executed for this run, by its own count."""
        with open(os.path.join(self.folder, "executions"), encoding="utf-8") as f:
            return sum(line.startswith(flow_run) for line in f)

    def stop(self):
        if self.worker is not None:
            self.worker.stop(grace=3)
