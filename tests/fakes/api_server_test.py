#!/usr/bin/python3
"""Holds the fake API server against what a real kube-apiserver does.

Without arguments it runs against the fake. Against a real one:

    api_server_test.py --url https://127.0.0.1:6443 --token-file TOKEN --ca CA.crt

There it makes (and deletes) nodes and pods named fake-check-…; no kubelet may own these nodes.
"""

import argparse
import sys
import threading
import time
import unittest
import uuid

from api_client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, ApiFailure, Client
from api_server import ApiServer

KEY = "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard"
TAINT = {"key": KEY, "effect": "NoSchedule"}
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


class Target:
    """Which server is tested; main() fills it in."""
    url = token = ca_file = server = None

    @classmethod
    def client(cls):
        return Client(cls.url, cls.token, cls.ca_file)


class Case(unittest.TestCase):
    def setUp(self):
        self.client = Target.client()
        self.name = f"fake-check-{uuid.uuid4().hex[:8]}"
        self.node_path = f"/api/v1/nodes/{self.name}"

    def fails(self, code, function, *arguments):
        with self.assertRaises(ApiFailure) as caught:
            function(*arguments)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception

    def remove(self, path):
        try:
            self.client.delete(path, {"gracePeriodSeconds": 0})
        except ApiFailure:
            pass

    def make_node(self, **status):
        node = self.client.create("/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name},
            "status": status})
        self.addCleanup(self.remove, self.node_path)
        return node

    def make_pod(self, name=None, node=None, **metadata):
        name = name or self.name
        spec = {"containers": [{"name": "main", "image": "registry.example/a:v1"}],
                "automountServiceAccountToken": False}
        if node:
            spec["nodeName"] = node
        pod = self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "spec": spec,
                                        "metadata": {"name": name, **metadata}})
        self.addCleanup(self.remove, f"{PODS}/{name}")
        return pod


class Objects(Case):
    def test_missing_is_404(self):
        failure = self.fails(404, self.client.get, self.node_path)
        self.assertEqual(failure.reason, "NotFound")
        self.assertEqual(failure.body["kind"], "Status")

    def test_second_create_is_409(self):
        self.make_node()
        failure = self.fails(409, self.make_node)
        self.assertEqual(failure.reason, "AlreadyExists")

    def test_create_fills_in_metadata(self):
        metadata = self.make_node()["metadata"]
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            self.assertTrue(metadata.get(field), field)

    def test_bad_name_is_422(self):
        self.fails(422, self.client.create, "/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "Not_A_Name"}})

    def test_wrong_kind_is_400(self):
        self.fails(400, self.client.create, "/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name}})

    def test_list_selects_by_field_and_label_and_pages(self):
        self.make_node()
        for number in range(3):
            self.make_pod(f"{self.name}-{number}", self.name, labels={"check": self.name})
        self.make_pod(f"{self.name}-elsewhere", labels={"check": self.name})
        on_node = self.client.get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}")
        self.assertEqual(len(on_node["items"]), 3)
        self.assertEqual(on_node["kind"], "PodList")
        self.assertNotIn("kind", on_node["items"][0])
        labelled = self.client.get(f"{PODS}?labelSelector=check%3D{self.name}&limit=3")
        self.assertEqual(len(labelled["items"]), 3)
        rest = self.client.get(f"{PODS}?labelSelector=check%3D{self.name}&limit=3&continue="
                               + labelled["metadata"]["continue"])
        self.assertEqual(len(rest["items"]), 1)
        self.assertFalse(rest["metadata"].get("continue"))

    def test_unsupported_field_selector_is_400(self):
        self.fails(400, self.client.get, "/api/v1/pods?fieldSelector=spec.nope%3D1")

    def test_unknown_resource_is_404(self):
        self.fails(404, self.client.get, "/api/v1/nothings")

    def test_replace_with_old_version_is_409(self):
        path = "/api/v1/namespaces/default/configmaps"
        first = self.client.create(path, {"apiVersion": "v1", "kind": "ConfigMap",
                                          "metadata": {"name": self.name}, "data": {"a": "1"}})
        self.addCleanup(self.remove, f"{path}/{self.name}")
        first["data"] = {"a": "2"}
        second = self.client.replace(f"{path}/{self.name}", first)
        self.assertEqual(second["data"], {"a": "2"})
        self.assertEqual(self.fails(409, self.client.replace, f"{path}/{self.name}",
                                    first).reason, "Conflict")


class Taints(Case):
    """The three writes of a taint, and the races that they must lose."""

    def add_first(self, node):
        return self.client.patch(self.node_path, [
            {"op": "test", "path": "/metadata/resourceVersion",
             "value": node["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/spec/taints", "value": [TAINT]}], JSON_PATCH)

    def test_add_and_remove(self):
        node = self.make_node()
        known = node["spec"].get("taints") or []  # a real server adds not-ready
        node = self.client.patch(self.node_path, [
            {"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]},
            {"op": "add", "path": "/spec/taints", "value": known + [TAINT]}], JSON_PATCH)
        self.assertIn(TAINT, node["spec"]["taints"])
        index = node["spec"]["taints"].index(TAINT)
        node = self.client.patch(self.node_path, [
            {"op": "test", "path": f"/spec/taints/{index}", "value": TAINT},
            {"op": "remove", "path": f"/spec/taints/{index}"}], JSON_PATCH)
        self.assertNotIn(TAINT, node["spec"].get("taints") or [])

    def test_failed_test_is_422(self):
        node = self.make_node()
        self.client.patch(self.node_path, {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
        failure = self.fails(422, self.add_first, node)
        self.assertEqual(failure.reason, "Invalid")

    def test_remove_of_what_is_not_there_is_422(self):
        self.make_node()
        self.fails(422, self.client.patch, self.node_path,
                   [{"op": "remove", "path": "/spec/taints/17"}], JSON_PATCH)

    def test_same_key_and_effect_twice_is_422(self):
        self.make_node()
        self.fails(422, self.client.patch, self.node_path,
                   [{"op": "add", "path": "/spec/taints", "value": [TAINT, TAINT]}], JSON_PATCH)
        both = [TAINT, {"key": KEY, "effect": "PreferNoSchedule"}]
        node = self.client.patch(self.node_path, [
            {"op": "add", "path": "/spec/taints", "value": both}], JSON_PATCH)
        for taint in both:
            self.assertIn(taint, node["spec"]["taints"])

    def test_strategic_merge_replaces_the_list(self):
        self.make_node()
        self.client.patch(self.node_path, {"spec": {"taints": [TAINT]}}, STRATEGIC_PATCH)
        other = {"key": "other", "effect": "NoSchedule"}
        node = self.client.patch(self.node_path, {"spec": {"taints": [other]}}, STRATEGIC_PATCH)
        self.assertIn(other, node["spec"]["taints"])
        self.assertNotIn(TAINT, node["spec"]["taints"])


class Patches(Case):
    def condition(self, kind, status):
        return {"type": kind, "status": status, "reason": "Checked", "message": "x",
                "lastHeartbeatTime": "2026-01-02T03:04:05Z",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}

    def test_conditions_merge_by_type(self):
        self.make_node()
        for kind in ("ImageFilesystemRisk", "Other"):
            node = self.client.patch(f"{self.node_path}/status", {
                "status": {"conditions": [self.condition(kind, "True")]}})
        node = self.client.patch(f"{self.node_path}/status", {
            "status": {"conditions": [{"type": "Other", "status": "False"}]}})
        found = {row["type"]: row for row in node["status"]["conditions"]}
        self.assertEqual(found["ImageFilesystemRisk"]["status"], "True")
        self.assertEqual(found["Other"]["status"], "False")
        self.assertEqual(found["Other"]["reason"], "Checked")
        node = self.client.patch(f"{self.node_path}/status", {
            "status": {"conditions": [{"$patch": "delete", "type": "Other"}]}})
        self.assertEqual([row["type"] for row in node["status"]["conditions"]
                          if row["type"] in found], ["ImageFilesystemRisk"])

    def test_status_and_spec_have_their_own_urls(self):
        self.make_node()
        node = self.client.patch(f"{self.node_path}/status", {"spec": {"taints": [TAINT]}})
        self.assertNotIn(TAINT, node["spec"].get("taints") or [])
        node = self.client.patch(self.node_path, {
            "status": {"conditions": [self.condition("ImageFilesystemRisk", "True")]}})
        self.assertNotIn("ImageFilesystemRisk", [
            row["type"] for row in node["status"].get("conditions") or []])

    def test_preconditions_in_a_patch(self):
        node = self.make_node()
        old_version = node["metadata"]["resourceVersion"]
        for content_type in (MERGE_PATCH, STRATEGIC_PATCH):
            self.fails(422, self.client.patch, self.node_path,
                       {"metadata": {"uid": str(uuid.uuid4()), "labels": {"a": "1"}}},
                       content_type)
        body = {"metadata": {"resourceVersion": old_version, "labels": {"a": "1"}}}
        self.client.patch(self.node_path, body, MERGE_PATCH)
        body["metadata"]["labels"]["a"] = "2"
        self.fails(409, self.client.patch, self.node_path, body, MERGE_PATCH)

    def test_nothing_changed_keeps_the_version(self):
        self.make_node()
        patch = {"metadata": {"labels": {"imagefs-guard.io/stage": "guard"}}}
        first = self.client.patch(self.node_path, patch, MERGE_PATCH)
        second = self.client.patch(self.node_path, patch, MERGE_PATCH)
        self.assertEqual(first["metadata"]["resourceVersion"],
                         second["metadata"]["resourceVersion"])

    def test_null_removes(self):
        self.make_node()
        self.client.patch(self.node_path, {"metadata": {"annotations": {"a": "1", "b": "2"}}})
        node = self.client.patch(self.node_path, {"metadata": {"annotations": {"a": None}}})
        self.assertEqual(node["metadata"]["annotations"].get("b"), "2")
        self.assertNotIn("a", node["metadata"]["annotations"])

    def test_bad_label_is_422(self):
        self.make_node()
        self.fails(422, self.client.patch, self.node_path,
                   {"metadata": {"labels": {"imagefs-guard.io/stage": "not ok"}}}, MERGE_PATCH)

    def test_unknown_format_is_415(self):
        self.make_node()
        self.fails(415, self.client.patch, self.node_path, {}, "application/json")

    def test_patch_of_what_is_missing_is_404(self):
        self.fails(404, self.client.patch, self.node_path, {"metadata": {"labels": {"a": "b"}}})


class Deletes(Case):
    def delete(self, **options):
        return self.client.delete(f"{PODS}/{self.name}", {
            "kind": "DeleteOptions", "apiVersion": "v1", **options})

    def test_preconditions(self):
        self.make_node()
        pod = self.make_pod(node=self.name)
        old_version = pod["metadata"]["resourceVersion"]
        self.fails(409, lambda: self.delete(preconditions={"uid": str(uuid.uuid4())}))
        pod = self.client.patch(f"{PODS}/{self.name}/status", {
            "metadata": {"uid": pod["metadata"]["uid"]},
            "status": {"conditions": [{"type": "DisruptionTarget", "status": "True",
                                       "reason": "ImagePullExceedsDisk"}]}})
        self.fails(409, lambda: self.delete(preconditions={
            "uid": pod["metadata"]["uid"], "resourceVersion": old_version}))
        self.delete(gracePeriodSeconds=1, preconditions={
            "uid": pod["metadata"]["uid"],
            "resourceVersion": pod["metadata"]["resourceVersion"]})

    def test_pod_on_a_node_waits_for_its_kubelet(self):
        self.make_node()
        self.make_pod(node=self.name)
        self.delete(gracePeriodSeconds=20)
        pod = self.client.get(f"{PODS}/{self.name}")
        self.assertTrue(pod["metadata"]["deletionTimestamp"])
        self.assertEqual(pod["metadata"]["deletionGracePeriodSeconds"], 20)
        self.delete(gracePeriodSeconds=5)
        pod = self.client.get(f"{PODS}/{self.name}")
        self.assertEqual(pod["metadata"]["deletionGracePeriodSeconds"], 5)
        self.delete(gracePeriodSeconds=60)
        pod = self.client.get(f"{PODS}/{self.name}")
        self.assertEqual(pod["metadata"]["deletionGracePeriodSeconds"], 5)
        self.delete(gracePeriodSeconds=0)
        self.fails(404, self.client.get, f"{PODS}/{self.name}")

    def test_delete_of_what_is_missing_is_404(self):
        self.fails(404, self.delete)


class Events(Case):
    def event(self, **changes):
        return {"apiVersion": "events.k8s.io/v1", "kind": "Event",
                "metadata": {"name": f"{self.name}.{time.time_ns():x}", "namespace": "default"},
                "eventTime": "2026-01-02T03:04:05.678901Z", "type": "Warning",
                "reason": "PullHeld", "action": "Hold", "note": "needs 12.9 GiB",
                "reportingController": "imagefs-guard.io/agent",
                "reportingInstance": self.name,
                "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "a",
                              "namespace": "default", "uid": str(uuid.uuid4())}, **changes}

    def test_create_and_count_up(self):
        event = self.client.create(EVENTS, self.event())
        path = f"{EVENTS}/{event['metadata']['name']}"
        event = self.client.patch(path, {"series": {
            "count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}}, MERGE_PATCH)
        self.assertEqual(event["series"]["count"], 2)

    def test_what_is_refused(self):
        for changes in ({"note": "x" * 1025}, {"type": "Loud"}, {"reason": ""},
                        {"reason": "x" * 129}, {"reportingInstance": "x" * 129},
                        {"reportingController": ""}, {"action": ""}):
            with self.subTest(changes):
                self.fails(422, self.client.create, EVENTS, self.event(**changes))
        self.fails(400, self.client.create, EVENTS,
                   self.event(eventTime="2026-01-02T03:04:05Z"))  # no microseconds

    def test_note_of_the_full_length(self):
        self.client.create(EVENTS, self.event(note="x" * 1024))


class Watches(Case):
    def follow(self, path, **query):
        """Starts a watch in a thread; returns the growing list of what it saw."""
        seen, ready = [], threading.Event()

        def run():
            try:
                ready.set()
                for event in Target.client().watch(path, query, timeout=20):
                    seen.append(event)
            except (OSError, ApiFailure) as error:
                seen.append(("FAILED", error))
            seen.append(("CLOSED", None))
        threading.Thread(target=run, daemon=True).start()
        ready.wait()
        return seen

    def wait_for(self, seen, wanted):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if [kind for kind, _ in seen if kind != "BOOKMARK"][:len(wanted)] == wanted:
                return
            time.sleep(0.02)
        self.assertEqual([kind for kind, _ in seen], wanted)

    def test_from_a_list_on(self):
        self.make_node()
        query = {"fieldSelector": f"metadata.name={self.name}"}
        listed = self.client.get(f"/api/v1/nodes?fieldSelector=metadata.name%3D{self.name}")
        seen = self.follow("/api/v1/nodes", timeoutSeconds=15, **query,
                           resourceVersion=listed["metadata"]["resourceVersion"])
        self.client.patch(self.node_path, {"metadata": {"labels": {"check": "1"}}})
        self.wait_for(seen, ["MODIFIED"])
        self.client.delete(self.node_path)
        self.wait_for(seen, ["MODIFIED", "DELETED"])
        self.assertEqual(seen[0][1]["metadata"]["labels"]["check"], "1")
        self.assertEqual(seen[0][1]["kind"], "Node")

    def test_without_a_version_it_starts_with_what_is_there(self):
        self.make_node()
        for query in ({}, {"resourceVersion": "0"}):
            seen = self.follow("/api/v1/nodes", timeoutSeconds=15,
                               fieldSelector=f"metadata.name={self.name}", **query)
            self.wait_for(seen, ["ADDED"])

    def test_pod_that_is_bound_enters_the_selector(self):
        self.make_node()
        seen = self.follow("/api/v1/pods", timeoutSeconds=15,
                           fieldSelector=f"spec.nodeName={self.name}")
        self.make_pod()
        self.client.create(f"{PODS}/{self.name}/binding", {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name}})
        self.wait_for(seen, ["ADDED"])
        self.assertEqual(seen[0][1]["spec"]["nodeName"], self.name)
        self.fails(409, self.client.create, f"{PODS}/{self.name}/binding", {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "other"}})

    def test_it_ends_after_timeout_seconds(self):
        started = time.monotonic()
        seen = self.follow("/api/v1/nodes", timeoutSeconds=2,
                           fieldSelector=f"metadata.name={self.name}", allowWatchBookmarks="true")
        self.wait_for(seen, ["CLOSED"])
        self.assertLess(time.monotonic() - started, 8)

    def test_invalid_version_is_an_error(self):
        seen = self.follow("/api/v1/nodes", resourceVersion="many")
        self.wait_for(seen, ["FAILED"])
        self.assertEqual(seen[0][1].code, 500)
        self.fails(400, self.client.get, "/api/v1/nodes?resourceVersion=many")

    def test_version_that_is_too_old_is_410(self):
        if Target.server:
            Target.server.api.store.expire_history()
        seen = self.follow("/api/v1/nodes", resourceVersion="1", timeoutSeconds=5)
        deadline = time.monotonic() + 5
        while not seen and time.monotonic() < deadline:
            time.sleep(0.02)
        kind, body = seen[0]
        if kind == "ADDED":
            self.skipTest("this server is young and still has its whole history")
        self.assertEqual(body.code if kind == "FAILED" else body["code"], 410)


class FakeOnly(Case):
    """What only the fake has: it can be told to fail."""

    def setUp(self):
        if Target.server is None:
            self.skipTest("only for the fake")
        super().setUp()
        self.addCleanup(Target.server.faults.clear)

    def test_next_calls_fail(self):
        self.client.create("/fake/faults", {"status": 500, "next": 2, "method": "GET",
                                            "path": "/api/v1/nodes"})
        self.fails(500, self.client.get, self.node_path)
        self.client.get("/api/v1/pods")
        self.fails(500, self.client.get, self.node_path)
        self.fails(404, self.client.get, self.node_path)

    def test_watches_can_be_dropped(self):
        seen = Watches.follow(self, "/api/v1/nodes", timeoutSeconds=15,
                              fieldSelector=f"metadata.name={self.name}")
        self.make_node()
        Watches.wait_for(self, seen, ["ADDED"])
        self.client.create("/fake/drop-watches", {})
        deadline = time.monotonic() + 5
        while len(seen) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertIn(seen[-1][0], ("FAILED", "CLOSED"))

    def test_token(self):
        with ApiServer(token="right") as server:
            self.assertEqual(Client(server.url, "right").get("/readyz"), "ok")
            self.fails(401, Client(server.url, "wrong").get, "/api/v1/nodes")
            self.fails(401, Client(server.url).get, "/api/v1/nodes")

    def test_objects_stay_over_a_restart(self):
        with ApiServer() as server:
            client = Client(server.url)
            client.create("/api/v1/nodes", {"metadata": {"name": "a"}})
            url = server.url
            server.stop()
            with self.assertRaises(OSError):
                client.get("/api/v1/nodes/a")
            server.start()
            self.assertEqual(server.url, url)
            self.assertEqual(client.get("/api/v1/nodes/a")["metadata"]["name"], "a")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--url", help="a real API server; without it the fake is tested")
    parser.add_argument("--token-file")
    parser.add_argument("--ca")
    options, rest = parser.parse_known_args()
    arguments = [sys.argv[0], *rest]
    if options.url:
        Target.url, Target.ca_file = options.url, options.ca
        if options.token_file:
            with open(options.token_file, encoding="ascii") as token:
                Target.token = token.read().strip()
        return unittest.main(argv=arguments)
    with ApiServer() as server:
        Target.server, Target.url = server, server.url
        return unittest.main(argv=arguments)


if __name__ == "__main__":
    main()
