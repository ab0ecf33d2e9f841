#!/usr/bin/python3
"""A small client of the Kubernetes API for the fake kubelet, the controllers and the tests.

It works against the fake as well as against a real kube-apiserver (with URL, token and CA file).
"""

import http.client
import json
import ssl
import threading
import urllib.parse

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
RETRY_SECONDS = 0.3
WATCH_SECONDS = 300


class ApiFailure(Exception):
    """A reply of 400 and above; `code`, `reason` and `body` are the Status object's."""

    def __init__(self, code, body):
        super().__init__(f"{code} {body.get('reason', '')}: {body.get('message', '')}")
        self.code = code
        self.reason = body.get("reason", "")
        self.body = body


class Client:
    """Paths are those of the API, such as /api/v1/nodes/node-a."""

    def __init__(self, url, token=None, ca_file=None):
        self._url = urllib.parse.urlsplit(url)
        self._token = token
        self._context = ssl.create_default_context(cafile=ca_file) \
            if self._url.scheme == "https" else None

    def _connect(self, timeout):
        host, port = self._url.hostname, self._url.port
        if self._context:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _send(self, connection, method, path, body, content_type):
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            headers["Content-Type"] = content_type
            data = json.dumps(body)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        if response.status >= 400:
            text = response.read().decode(errors="replace")
            try:
                status = json.loads(text)
            except json.JSONDecodeError:
                status = {"message": text}
            raise ApiFailure(response.status, status)
        return response

    def request(self, method, path, body=None, content_type="application/json", timeout=10.0):
        """The decoded reply. Raises ApiFailure, or OSError where nobody answers."""
        connection = self._connect(timeout)
        try:
            text = self._send(connection, method, path, body, content_type).read()
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                return text.decode(errors="replace")
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def find(self, path):
        """Like get(), but None for 404."""
        try:
            return self.get(path)
        except ApiFailure as error:
            if error.code == 404:
                return None
            raise

    def create(self, path, body):
        return self.request("POST", path, body)

    def replace(self, path, body):
        return self.request("PUT", path, body)

    def patch(self, path, body, content_type=STRATEGIC_PATCH):
        return self.request("PATCH", path, body, content_type)

    def delete(self, path, options=None):
        return self.request("DELETE", path, options)

    def watch(self, path, query, timeout=WATCH_SECONDS + 30.0):
        """Yields (type, object) until the server closes the stream."""
        full = f"{path}?{urllib.parse.urlencode({'watch': '1', **query})}"
        connection = self._connect(timeout)
        try:
            response = self._send(connection, "GET", full, None, None)
            while line := response.readline():
                event = json.loads(line)
                yield event["type"], event["object"]
        except (http.client.HTTPException, json.JSONDecodeError) as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()

    def follow(self, path, handle, stop, query=None):
        """Lists, then watches, for ever: handle(type, object) for each. Start it with start()."""
        known = {}

        def relist():
            text = urllib.parse.urlencode(query or {})
            listed = self.get(f"{path}?{text}" if text else path)
            found = {item["metadata"]["uid"]: item for item in listed.get("items", [])}
            for uid in set(known) - set(found):
                handle("DELETED", known.pop(uid))
            for uid, item in found.items():
                old = known.get(uid)
                known[uid] = item
                if old != item:
                    handle("MODIFIED" if old else "ADDED", item)
            return listed["metadata"]["resourceVersion"]

        version = None
        while not stop.is_set():
            try:
                version = version or relist()
                for kind, item in self.watch(path, {
                        **(query or {}), "resourceVersion": version,
                        "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS}):
                    if stop.is_set():
                        return
                    if kind == "ERROR":
                        version = None
                        break
                    version = item["metadata"]["resourceVersion"]
                    if kind == "DELETED":
                        known.pop(item["metadata"]["uid"], None)
                    elif kind != "BOOKMARK":
                        known[item["metadata"]["uid"]] = item
                    if kind != "BOOKMARK":
                        handle(kind, item)
            except (OSError, ApiFailure):
                version = None
                stop.wait(RETRY_SECONDS)

    def start_following(self, path, handle, stop, query=None):
        thread = threading.Thread(target=self.follow, args=(path, handle, stop, query),
                                  daemon=True)
        thread.start()
        return thread


def pod_path(pod, subresource=""):
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    return f"{path}/{subresource}" if subresource else path
