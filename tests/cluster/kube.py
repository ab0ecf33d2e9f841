"""A client of the Kubernetes API, as small as the harness needs it."""

import http.client
import json
import ssl
import threading
import time
import urllib.parse

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
REQUEST_SECONDS = 20
WATCH_SECONDS = 600


class ApiError(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class Kube:
    """Talks to one API server with one client certificate; each thread has its own connection."""

    def __init__(self, host, port, ca, certificate=None, key=None):
        self.host, self.port = host, port
        self.tls = ssl.create_default_context(cafile=ca)
        if certificate:
            self.tls.load_cert_chain(certificate, key)
        self.local = threading.local()

    def connect(self, timeout):
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls)

    def request(self, method, path, body=None, content_type="application/json"):
        """Returns the decoded answer; one retry, as an idle connection may be closed meanwhile."""
        data = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            connection = getattr(self.local, "connection", None)
            if connection is None:
                connection = self.local.connection = self.connect(REQUEST_SECONDS)
            try:
                connection.request(method, path, data, {"Content-Type": content_type})
                answer = connection.getresponse()
                text = answer.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self.local.connection = None
                if attempt == 2:
                    raise
        decoded = json.loads(text) if text[:1] == b"{" else {"text": text.decode(errors="replace")}
        if answer.status >= 300:
            raise ApiError(answer.status, decoded.get("message", decoded.get("text", "")))
        return decoded

    def get(self, path):
        return self.request("GET", path)

    def find(self, path):
        """Like get, but None where there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def items(self, path, **query):
        """All objects of a list; `query` is for instance fieldSelector="…"."""
        return self.get(path + "?" + urllib.parse.urlencode(query))["items"]

    def create(self, path, body):
        return self.request("POST", path, body)

    def apply_all(self, objects):
        """Creates objects by their kind; those that exist already stay as they are."""
        for item in objects:
            try:
                self.create(collection_of(item), item)
            except ApiError as error:
                if error.status != 409:
                    raise

    def patch(self, path, body, content_type=MERGE):
        return self.request("PATCH", path, body, content_type)

    def delete(self, path, **options):
        body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        try:
            return self.request("DELETE", path, body)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def ready(self):
        try:
            return self.get("/readyz").get("text") == "ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False


class Watch:
    """Follows one list in a thread of its own and calls `on_change(time, type, object)`.

    The times are of the monotonic clock, taken when the line arrives: Kubernetes' own timestamps
    have whole seconds only.
    """

    def __init__(self, kube, path, on_change, field_selector=""):
        self.kube, self.path, self.on_change = kube, path, on_change
        self.query = {"fieldSelector": field_selector} if field_selector else {}
        self.stopped = threading.Event()
        self.connection = None
        self.thread = threading.Thread(target=self.follow, daemon=True, name=f"watch {path}")

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.stopped.set()
        connection = self.connection
        if connection is not None and connection.sock is not None:
            try:
                connection.sock.shutdown(2)
            except OSError:
                pass
        self.thread.join(5)

    def follow(self):
        version = None
        while not self.stopped.is_set():
            try:
                if version is None:
                    query = urllib.parse.urlencode(self.query)
                    listing = self.kube.get(f"{self.path}?{query}")
                    version = listing["metadata"]["resourceVersion"]
                    for item in listing["items"]:
                        self.on_change(time.monotonic(), "ADDED", item)
                version = self.read_changes(version)
            except (OSError, http.client.HTTPException, ValueError, ApiError):
                version = None
                self.stopped.wait(0.2)

    def read_changes(self, version):
        """Reads until the server ends the watch; returns where to go on, None to list anew."""
        query = dict(self.query, watch="1", resourceVersion=version, allowWatchBookmarks="true")
        self.connection = self.kube.connect(WATCH_SECONDS)
        try:
            self.connection.request("GET", f"{self.path}?{urllib.parse.urlencode(query)}")
            answer = self.connection.getresponse()
            if answer.status != 200:
                return None
            for line in answer:
                change = json.loads(line)
                if change["type"] == "ERROR":
                    return None
                version = change["object"]["metadata"]["resourceVersion"]
                if change["type"] != "BOOKMARK":
                    self.on_change(time.monotonic(), change["type"], change["object"])
        finally:
            self.connection.close()
        return version


PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "Pod": "pods",
    "Job": "jobs",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Deployment": "deployments",
    "PriorityClass": "priorityclasses",
    "ConfigMap": "configmaps",
}


def collection_of(item):
    """The URL of the collection that an object belongs to."""
    group = item["apiVersion"]
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    namespace = item["metadata"].get("namespace")
    return base + (f"/namespaces/{namespace}" if namespace else "") + "/" + PLURALS[item["kind"]]


def path_of(item):
    return f"{collection_of(item)}/{item['metadata']['name']}"


def condition_of(item, kind):
    """The status of one condition of an object: True, False, Unknown, or None if it has none."""
    for condition in item.get("status", {}).get("conditions") or []:
        if condition["type"] == kind:
            return condition["status"]
    return None
