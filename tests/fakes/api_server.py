#!/usr/bin/python3
"""A small stand-in for a Kubernetes API server, for tests and the quickstart.

Pods, nodes, jobs, events, leases, config maps over plain HTTP on loopback: get, list with
selectors, watch, create, replace, patch (three formats), delete with preconditions, status
subresources, and the errors of the real one. tests/fakes/api_server_test.py holds it against a
real kube-apiserver. It checks no permissions; `token` makes it ask for one bearer token.

    server = ApiServer(); server.start(); server.url

A control endpoint makes it fail: POST /fake/faults {"status": 500, "next": 3, "method": "PATCH",
"path": "/api/v1/nodes"}, POST /fake/drop-watches, POST /fake/expire-history (watches from before
get 410), GET /fake/requests (how often each verb and resource was asked for).
"""

import argparse
import collections
import copy
import datetime
import json
import re
import socket
import threading
import time
import urllib.parse
import uuid

import api_patch
import http_base

HISTORY_LIMIT = 4096
BODY_LIMIT = 3 << 20
BOOKMARK_SECONDS = 5.0
WATCH_SECONDS = 1800.0
NODE_GRACE_SECONDS = 30

Kind = collections.namedtuple("Kind", "group version plural kind namespaced has_status")
KINDS = [Kind("", "v1", "pods", "Pod", True, True),
         Kind("", "v1", "nodes", "Node", False, True),
         Kind("", "v1", "configmaps", "ConfigMap", True, False),
         Kind("", "v1", "namespaces", "Namespace", False, True),
         Kind("batch", "v1", "jobs", "Job", True, True),
         Kind("apps", "v1", "replicasets", "ReplicaSet", True, True),
         Kind("coordination.k8s.io", "v1", "leases", "Lease", True, False),
         Kind("events.k8s.io", "v1", "events", "Event", True, False)]

PATCHES = {"application/json-patch+json": api_patch.json_patch,
           "application/merge-patch+json": api_patch.merge_patch,
           "application/strategic-merge-patch+json": api_patch.strategic_merge_patch}

SELECTABLE = {"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase", "reason",
              "type", "regarding.name", "regarding.kind", "regarding.uid", "spec.unschedulable"}
LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
OBJECT_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


class ApiError(Exception):
    """Becomes a Status object, as every error of the API does."""

    def __init__(self, code, reason, message, details=None):
        super().__init__(message)
        self.code = code
        self.body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                     "message": message, "reason": reason, "code": code}
        if details:
            self.body["details"] = details


def not_found(kind, name):
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    return ApiError(404, "NotFound", f'{resource} "{name}" not found',
                    {"name": name, "group": kind.group, "kind": kind.plural})


def conflict(kind, name, message):
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {kind.plural} "{name}": '
                    + message, {"name": name, "group": kind.group, "kind": kind.plural})


def invalid(kind, name, message):
    return ApiError(422, "Invalid", f'{kind.kind} "{name}" is invalid: {message}',
                    {"name": name, "group": kind.group, "kind": kind.kind})


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def api_version(kind):
    return f"{kind.group}/{kind.version}" if kind.group else kind.version


class Store:
    """All objects and the last changes, each with its resource version. Thread-safe."""

    def __init__(self):
        self.changed = threading.Condition()
        self.objects = {kind: {} for kind in KINDS}
        self.version = 100
        # (version, kind, object after or None, object before or None)
        self.history = collections.deque(maxlen=HISTORY_LIMIT)
        self.expired_version = self.version

    def write(self, kind, key, new):
        """Stores, replaces or (new is None) removes an object; call it with `changed` held."""
        old = self.objects[kind].get(key)
        self.version += 1
        if len(self.history) == HISTORY_LIMIT:
            self.expired_version = self.history[0][0]
        if new is None:
            gone = copy.deepcopy(old)
            gone["metadata"]["resourceVersion"] = str(self.version)
            del self.objects[kind][key]
            self.history.append((self.version, kind, None, gone))
        else:
            new["metadata"]["resourceVersion"] = str(self.version)
            self.objects[kind][key] = new
            self.history.append((self.version, kind, new, old))
        self.changed.notify_all()

    def expire_history(self):
        with self.changed:
            self.expired_version = self.version
            self.history.clear()


class Api:
    """The verbs, without HTTP. Objects handed out are copies."""

    def __init__(self):
        self.store = Store()

    def get(self, kind, namespace, name):
        with self.store.changed:
            return copy.deepcopy(self._find(kind, namespace, name))

    def list(self, kind, namespace, query):
        match = selector(query)
        if not (query.get("resourceVersion") or "0").isdigit():
            raise ApiError(400, "BadRequest", "invalid resource version: "
                           + query["resourceVersion"])
        limit = int(query.get("limit") or 0)
        after = query.get("continue", "")
        with self.store.changed:
            keys = sorted(key for key, found in self.store.objects[kind].items()
                          if namespace in ("", key[0]) and match(found) and "/".join(key) > after)
            page = keys[:limit] if limit else keys
            metadata = {"resourceVersion": str(self.store.version)}
            if len(page) < len(keys):
                metadata["continue"] = "/".join(page[-1])
                metadata["remainingItemCount"] = len(keys) - len(page)
            items = [copy.deepcopy(self.store.objects[kind][key]) for key in page]
        for item in items:  # in a list the real server leaves these out
            item.pop("kind", None)
            item.pop("apiVersion", None)
        return {"kind": kind.kind + "List", "apiVersion": api_version(kind),
                "metadata": metadata, "items": items}

    def create(self, kind, namespace, body):
        new = _typed(kind, body)
        metadata = new.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        name = metadata.get("name") or ""
        if metadata.setdefault("namespace", namespace) != namespace:
            raise ApiError(400, "BadRequest", "the namespace of the provided object does not "
                           "match the namespace sent on the request")
        if not kind.namespaced:
            del metadata["namespace"]
        if metadata.get("resourceVersion"):
            raise ApiError(400, "BadRequest", "resourceVersion should not be set on objects to "
                           "be created")
        if not OBJECT_NAME.match(name):
            raise invalid(kind, name, "metadata.name: Required value or not an RFC 1123 name")
        metadata.update(uid=str(uuid.uuid4()), creationTimestamp=now())
        if kind.has_status:
            new.setdefault("spec", {})
            new.setdefault("status", {})
        if kind.plural == "pods":
            new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
            new["spec"].setdefault("restartPolicy", "Always")
        elif kind.has_status and kind.plural != "nodes":  # a kubelet registers with its status
            new["status"] = {}
        _validate(kind, new)
        with self.store.changed:
            key = (namespace, name)
            if key in self.store.objects[kind]:
                raise ApiError(409, "AlreadyExists", f'{kind.plural} "{name}" already exists',
                               {"name": name, "group": kind.group, "kind": kind.plural})
            self.store.write(kind, key, new)
            return copy.deepcopy(new)

    def update(self, kind, namespace, name, subresource, change):
        """Replaces an object by change(copy of it), which may raise, under the server's rules."""
        with self.store.changed:
            old = self._find(kind, namespace, name)
            new = _typed(kind, change(copy.deepcopy(old)))
            given = new.setdefault("metadata", {})
            if given.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
                raise invalid(kind, name, f'metadata.uid: Invalid value: "{given["uid"]}": field '
                              "is immutable")
            if given.get("resourceVersion") not in (None, "", old["metadata"]["resourceVersion"]):
                raise conflict(kind, name, "the object has been modified; please apply your "
                               "changes to the latest version and try again")
            if given.get("name", name) != name:
                raise ApiError(400, "BadRequest", "the name of the object does not match the name "
                               "on the URL")
            for field in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp",
                          "deletionGracePeriodSeconds", "namespace", "name"):
                given.pop(field, None)
                if field in old["metadata"]:
                    given[field] = old["metadata"][field]
            # Each URL writes its own half; both may write labels and annotations.
            for part in ("spec", "status") if kind.has_status else ():
                if (part == "status") != (subresource == "status"):
                    new.pop(part, None)
                    if part in old:
                        new[part] = old[part]
            if kind.plural == "pods" and not subresource:
                _pin_pod_spec(kind, old, new)
            _validate(kind, new)
            if new != old:
                if _finished_deletion(new):
                    self.store.write(kind, (namespace, name), None)
                else:
                    self.store.write(kind, (namespace, name), new)
            return copy.deepcopy(new)

    def bind(self, namespace, name, body):
        kind = kind_of("pods")
        with self.store.changed:
            new = copy.deepcopy(self._find(kind, namespace, name))
            if new["spec"].get("nodeName"):
                raise conflict(kind, name, f"pod {name} is already assigned to node "
                               f'"{new["spec"]["nodeName"]}"')
            new["spec"]["nodeName"] = body["target"]["name"]
            new["status"]["conditions"] = [{"type": "PodScheduled", "status": "True",
                                            "lastTransitionTime": now()}]
            self.store.write(kind, (namespace, name), new)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "code": 201}

    def delete(self, kind, namespace, name, options):
        """Pods on a node get a grace period and stay until the kubelet deletes them with 0."""
        with self.store.changed:
            old = self._find(kind, namespace, name)
            metadata = old["metadata"]
            wanted = (options or {}).get("preconditions") or {}
            for field in ("uid", "resourceVersion"):
                if wanted.get(field) not in (None, metadata[field]):
                    raise conflict(kind, name, f"the {field} in the precondition ({wanted[field]}) "
                                   f"does not match the {field} in record ({metadata[field]})")
            new = copy.deepcopy(old)
            grace = self._grace(kind, old, options or {})
            if grace or metadata.get("finalizers"):
                if "deletionTimestamp" in metadata and \
                        grace >= metadata.get("deletionGracePeriodSeconds", 0):
                    return new  # a second delete can only shorten the grace
                new["metadata"].setdefault("deletionTimestamp", now())
                new["metadata"]["deletionGracePeriodSeconds"] = grace
                self.store.write(kind, (namespace, name), new)
                return copy.deepcopy(new)
            self.store.write(kind, (namespace, name), None)
            if kind.plural == "pods":
                return new
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {"name": name, "group": kind.group, "kind": kind.plural,
                                "uid": metadata["uid"]}}

    @staticmethod
    def _grace(kind, pod, options):
        if kind.plural != "pods" or not pod.get("spec", {}).get("nodeName"):
            return 0
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        default = pod["spec"].get("terminationGracePeriodSeconds", NODE_GRACE_SECONDS)
        grace = options.get("gracePeriodSeconds")
        return default if grace is None else grace

    def _find(self, kind, namespace, name):
        found = self.store.objects[kind].get((namespace, name))
        if found is None:
            raise not_found(kind, name)
        return found

    def watch(self, kind, namespace, query, stop):
        """Yields watch events until `stop()` says so or the time asked for is over.

        `None` is yielded now and then, so that the caller notices a closed connection.
        """
        match = selector(query)
        seconds = float(query.get("timeoutSeconds") or WATCH_SECONDS)
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        end = time.monotonic() + seconds
        next_bookmark = time.monotonic() + min(BOOKMARK_SECONDS, seconds)
        position = 0
        for event, position in self._first_events(kind, namespace, query, match):
            yield event
            if event and event["type"] == "ERROR":
                return
        while not stop():
            with self.store.changed:
                if self.store.version == position:
                    self.store.changed.wait(0.25)
                changes = [change for change in self.store.history if change[0] > position]
                position = self.store.version
            for version, changed_kind, new, old in changes:
                if changed_kind is kind and _in_namespace(new or old, namespace):
                    event = _watch_event(match, version, new, old)
                    if event:
                        yield event
            if bookmarks and time.monotonic() >= min(next_bookmark, end):
                next_bookmark = time.monotonic() + BOOKMARK_SECONDS
                yield {"type": "BOOKMARK", "object": {
                    "kind": kind.kind, "apiVersion": api_version(kind),
                    "metadata": {"resourceVersion": str(position), "creationTimestamp": None}}}
            if time.monotonic() >= end:
                return
            yield None

    def _first_events(self, kind, namespace, query, match):
        """What a watch starts with, each with the version after which it goes on."""
        asked = query.get("resourceVersion", "")
        if asked and not asked.isdigit():
            raise ApiError(500, "", f'resourceVersion: Invalid value: "{asked}"')  # sic
        with self.store.changed:
            version = self.store.version
            if asked in ("", "0"):
                found = [copy.deepcopy(item) for key, item in
                         sorted(self.store.objects[kind].items())
                         if namespace in ("", key[0]) and match(item)]
                return [({"type": "ADDED", "object": item}, version)
                        for item in found] or [(None, version)]
            if int(asked) < self.store.expired_version:
                error = ApiError(410, "Expired", f"too old resource version: {asked} "
                                 f"({self.store.expired_version})")
                return [({"type": "ERROR", "object": error.body}, version)]
            return [(None, int(asked))]


def kind_of(plural):
    return next(kind for kind in KINDS if kind.plural == plural)


def selector(query):
    """A predicate from fieldSelector and labelSelector."""
    fields = _requirements(query.get("fieldSelector", ""))
    for path, _, _ in fields:
        if path not in SELECTABLE:
            raise ApiError(400, "BadRequest", f'field label not supported: "{path}"')
    labels = _requirements(query.get("labelSelector", ""))

    def match(item):
        item_labels = item["metadata"].get("labels", {})
        return (all(_compare(_field(item, path), operator, value)
                    for path, operator, value in fields)
                and all(_compare(item_labels.get(path), operator, value)
                        for path, operator, value in labels))
    return match


def _requirements(text):
    found = []
    for part in filter(None, text.split(",")):
        match = re.match(r"^([^=!]+?)(==|!=|=)(.*)$", part)
        if match:
            found.append((match[1], "!=" if match[2] == "!=" else "=", match[3]))
        elif part.startswith("!"):
            found.append((part[1:], "absent", ""))
        else:
            found.append((part, "exists", ""))
    return found


def _compare(actual, operator, value):
    if operator == "exists":
        return actual is not None
    if operator == "absent":
        return actual is None
    return ((actual or "") == value) == (operator == "=")


def _field(item, path):
    for part in path.split("."):
        item = item.get(part, {}) if isinstance(item, dict) else {}
    return item if isinstance(item, str) else ""


def _in_namespace(item, namespace):
    return namespace in ("", item["metadata"].get("namespace", ""))


def _watch_event(match, version, new, old):
    """What a watcher with this selector sees of a change; None if nothing."""
    was = old is not None and match(old)
    is_now = new is not None and match(new)
    if is_now:
        return {"type": "MODIFIED" if was else "ADDED", "object": new}
    if not was:
        return None
    last = copy.deepcopy(new or old)  # DELETED also means: has left the selector
    last["metadata"]["resourceVersion"] = str(version)
    return {"type": "DELETED", "object": last}


def _typed(kind, body):
    if not isinstance(body, dict):
        raise ApiError(400, "BadRequest", "the body is not an object")
    if body.get("kind", kind.kind) != kind.kind or \
            body.get("apiVersion", api_version(kind)) != api_version(kind):
        raise ApiError(400, "BadRequest", f"the object provided is unrecognized: expected "
                       f"{api_version(kind)} {kind.kind}")
    return {**body, "kind": kind.kind, "apiVersion": api_version(kind)}


def _finished_deletion(item):
    metadata = item["metadata"]
    return "deletionTimestamp" in metadata and not metadata.get("finalizers") and \
        not metadata.get("deletionGracePeriodSeconds")


def _pin_pod_spec(kind, old, new):
    changeable = {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"}
    before, after = ({key: value for key, value in item.get("spec", {}).items()
                      if key not in changeable} for item in (old, new))
    if before != after:
        raise invalid(kind, old["metadata"]["name"], "spec: Forbidden: pod updates may not change "
                      "fields other than a few")


def _validate(kind, item):
    """Where the real server is strict about what the agent writes."""
    name = item["metadata"].get("name", "")
    for key, value in (item["metadata"].get("labels") or {}).items():
        prefix, _, short = key.rpartition("/")
        if not LABEL_VALUE.match(value) or len(value) > 63 or len(short) > 63 \
                or len(prefix) > 253 or not LABEL_VALUE.match(short) or not short:
            raise invalid(kind, name, f'metadata.labels: Invalid value: "{key}={value}"')
    annotations = item["metadata"].get("annotations") or {}
    if any(not isinstance(value, str) for value in annotations.values()) or \
            sum(len(key) + len(value) for key, value in annotations.items()) > 256 << 10:
        raise invalid(kind, name, "metadata.annotations: Too long or not strings")
    if kind.kind == "Node":
        _validate_node(kind, item)
    elif kind.kind == "Event":
        _validate_event(kind, item)


def _validate_node(kind, node):
    name = node["metadata"]["name"]
    taints = node.get("spec", {}).get("taints") or []
    pairs = [(taint.get("key"), taint.get("effect")) for taint in taints]
    if len(set(pairs)) != len(pairs):
        raise invalid(kind, name, "metadata.taints: Duplicate value: taints must be unique by "
                      "key and effect pair")
    for taint in taints:
        if not taint.get("key") or taint.get("effect") not in (
                "NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise invalid(kind, name, f"metadata.taints: Unsupported value: {taint}")
        if len(taint.get("value", "")) > 63 or not LABEL_VALUE.match(taint.get("value", "")):
            raise invalid(kind, name, f"metadata.taints.value: Invalid value: {taint['value']!r}")
    for condition in node.get("status", {}).get("conditions") or []:
        if condition.get("status") not in ("True", "False", "Unknown"):
            raise invalid(kind, name, f"status.conditions: Unsupported value: {condition}")


def _validate_event(kind, event):
    name = event["metadata"]["name"]
    for field, limit in (("reportingController", 253), ("reportingInstance", 128),
                         ("action", 128), ("reason", 128)):
        if not 0 < len(event.get(field) or "") <= limit:
            raise invalid(kind, name, f"{field}: Required value, at most {limit} characters")
    if len((event.get("note") or "").encode()) > 1024:
        raise invalid(kind, name, "note: Invalid value: can have at most 1024 bytes")
    if event.get("type") not in ("Normal", "Warning"):
        raise invalid(kind, name, "type: Invalid value: has to be one of Normal, Warning")
    if not re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$", event.get("eventTime") or ""):
        raise ApiError(400, "BadRequest", "eventTime: parsing time as MicroTime failed")


class Faults:
    """What the server was told to get wrong."""

    def __init__(self):
        self._lock = threading.Lock()
        self._rules = []
        self.watch_generation = 0
        self.requests = collections.Counter()

    def add(self, rule):
        with self._lock:
            self._rules.append({"next": 1, "status": 500, "delay_ms": 0, **rule})

    def clear(self):
        with self._lock:
            self._rules.clear()

    def take(self, method, path):
        """The status to fail this request with, or 0; sleeps where a delay was asked for."""
        delay_ms = status = 0
        with self._lock:
            for rule in self._rules:
                if rule["next"] > 0 and rule.get("method", method) == method and \
                        path.startswith(rule.get("path", "")):
                    rule["next"] -= 1
                    delay_ms, status = rule["delay_ms"], rule["status"]
                    break
        if delay_ms:
            time.sleep(delay_ms / 1000)
        return status


class ApiServer:
    """The server on a loopback port. `api` gives tests the verbs without HTTP."""

    def __init__(self, port=0, token=None):
        self.api = Api()
        self.faults = Faults()
        self.token = token
        self._port = port
        self._server = None
        for namespace in ("default", "kube-system"):
            self.api.create(kind_of("namespaces"), "", {"metadata": {"name": namespace}})

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        """Starts to listen; after stop() again at the same port, with the same objects."""
        handler = type("BoundHandler", (_Handler,), {"owner": self})
        self._server = http_base.Server(handler, self._port)
        self._server.open_sockets = set()
        self._port = self._server.server_port
        self._server.start()

    def stop(self):
        """Closes the port and every connection, as a server that dies does."""
        if self._server is None:
            return
        self._server.stop()
        for connection in list(self._server.open_sockets):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._server = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()


class _Handler(http_base.Handler):
    owner = None

    def setup(self):
        super().setup()
        self.server.open_sockets.add(self.connection)

    def finish(self):
        self.server.open_sockets.discard(self.connection)
        try:
            super().finish()
        except OSError:
            pass

    def do_GET(self):
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _serve(self):
        try:
            url = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
            length = int(self.headers.get("Content-Length") or 0)
            if length > BODY_LIMIT:
                raise ApiError(413, "RequestEntityTooLarge", "limit is 3145728")
            body = self.body()
            if url.path.startswith("/fake/"):
                self.reply(200, self._control(url.path, json.loads(body) if body else {}))
                return
            if self.owner.token and \
                    self.headers.get("Authorization") != f"Bearer {self.owner.token}":
                raise ApiError(401, "Unauthorized", "Unauthorized")
            status = self.owner.faults.take(self.command, url.path)
            if status:
                raise ApiError(status, {409: "Conflict", 429: "TooManyRequests"}.get(
                    status, "InternalError"), "a fault that the test asked for")
            if url.path in ("/readyz", "/livez", "/healthz"):
                self.reply(200, "ok")
            elif url.path == "/version":
                self.reply(200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0-fake"})
            else:
                self._serve_resource(url.path, query, body)
        except ApiError as error:
            self.reply(error.code, error.body,
                       headers={"Retry-After": "1"} if error.code == 429 else None)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except json.JSONDecodeError as error:
            self.reply(400, ApiError(400, "BadRequest", str(error)).body)

    def _control(self, path, body):
        faults = self.owner.faults
        if path == "/fake/faults":
            faults.add(body)
        elif path == "/fake/no-faults":
            faults.clear()
        elif path == "/fake/drop-watches":
            faults.watch_generation += 1
        elif path == "/fake/expire-history":
            self.owner.api.store.expire_history()
        elif path != "/fake/requests":
            raise ApiError(404, "NotFound", "no such control")
        return {" ".join(key): count for key, count in faults.requests.items()}

    def _serve_resource(self, path, query, body):
        kind, namespace, name, subresource = parse_path(path)
        watching = self.command == "GET" and query.get("watch") in ("1", "true")
        verb = "WATCH" if watching else self.command if name or self.command != "GET" else "LIST"
        resource = kind.plural + (f"/{subresource}" if subresource else "")
        self.owner.faults.requests[verb, resource] += 1
        api = self.owner.api
        if watching:
            if name:
                query["fieldSelector"] = f"metadata.name={name}"
            self._watch(kind, namespace, query)
        elif self.command == "GET":
            self.reply(200, api.get(kind, namespace, name) if name
                        else api.list(kind, namespace, query))
        elif self.command == "POST" and subresource == "binding":
            self.reply(201, api.bind(namespace, name, json.loads(body)))
        elif self.command == "POST" and not name:
            self.reply(201, api.create(kind, namespace, json.loads(body)))
        elif self.command == "PUT" and name:
            new = json.loads(body)
            self.reply(200, api.update(kind, namespace, name, subresource, lambda _: new))
        elif self.command == "PATCH" and name:
            self._patch(kind, namespace, name, subresource, body)
        elif self.command == "DELETE" and name and not subresource:
            options = json.loads(body) if body else {}
            if "gracePeriodSeconds" in query:
                options["gracePeriodSeconds"] = int(query["gracePeriodSeconds"])
            self.reply(200, api.delete(kind, namespace, name, options))
        else:
            raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on "
                           "the requested resource")

    def _patch(self, kind, namespace, name, subresource, body):
        content_type = (self.headers.get("Content-Type") or "").partition(";")[0].strip()
        if content_type not in PATCHES:
            raise ApiError(415, "UnsupportedMediaType", "the body of the request was in an "
                           f"unknown format - accepted media types include: {', '.join(PATCHES)}")
        patch = json.loads(body)

        def change(old):
            try:
                return PATCHES[content_type](old, patch)
            except api_patch.PatchFailed:
                # No word about which operation it was: the real one keeps it to itself, too.
                raise ApiError(422, "Invalid", "the server rejected our request due to an error "
                               "in our request") from None
        self.reply(200, self.owner.api.update(kind, namespace, name, subresource, change))

    def _watch(self, kind, namespace, query):
        if "sendInitialEvents" in query:
            raise ApiError(422, "Invalid", "sendInitialEvents: Forbidden: is forbidden for watch "
                           "unless the WatchList feature gate is enabled")
        generation = self.owner.faults.watch_generation
        server = self.owner._server
        events = self.owner.api.watch(
            kind, namespace, query,
            lambda: generation != self.owner.faults.watch_generation
            or self.owner._server is not server)
        first = next(events, None)  # may raise a 400 before the headers are out
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(first)
        for event in events:
            self._chunk(event)
        if generation != self.owner.faults.watch_generation:
            self.close_connection = True  # dropped: no last chunk
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event):
        if event is not None:
            line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))


def parse_path(path):
    """(kind, namespace, name, subresource) of a resource's URL."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[1:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[2:]
    else:
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    version, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    for kind in KINDS:
        if (kind.group, kind.version, kind.plural) == (group, version, rest[0]):
            name, subresource, extra = (rest[1:] + ["", "", ""])[:3]
            known = {"pods": ("", "status", "binding")}.get(
                kind.plural, ("", "status") if kind.has_status else ("",))
            if not extra and subresource in known and \
                    (not name or kind.namespaced == bool(namespace)):
                return kind, namespace, name, subresource
    raise ApiError(404, "NotFound", "the server could not find the requested resource")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token")
    options = parser.parse_args()
    with ApiServer(options.port, options.token) as server:
        print(server.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
