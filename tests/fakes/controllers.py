#!/usr/bin/python3
"""Small stand-ins for the scheduler, the Job controller and the node lifecycle controller.

They know as much as a disk-pressure story needs: one Job makes one pod at a time (backoffLimit,
suspend, completion), a pod goes to a node whose taints it tolerates, and DiskPressure becomes the
NoSchedule taint. Not there: podFailurePolicy, parallelism, finalizers, resources, affinity.
"""

import datetime
import threading
import uuid

from api_client import JSON_PATCH, ApiFailure, pod_path

PRESSURE_TAINT = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Controllers:
    """Runs all three on one client until stop()."""

    def __init__(self, client):
        self._client = client
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._pods, self._jobs, self._nodes = {}, {}, {}

    def start(self):
        for path, known in (("/api/v1/nodes", self._nodes), ("/api/v1/pods", self._pods),
                            ("/apis/batch/v1/jobs", self._jobs)):
            self._client.start_following(path, self._remember(known), self._stop)

    def stop(self):
        self._stop.set()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def _remember(self, known):
        def handle(kind, item):
            with self._lock:
                if kind == "DELETED":
                    known.pop(item["metadata"]["uid"], None)
                else:
                    known[item["metadata"]["uid"]] = item
                self._reconcile()
        return handle

    def _reconcile(self):
        """Level-triggered: whatever changed, look at everything; there is little of it."""
        for step in (self._taint_nodes, self._run_jobs, self._schedule):
            try:
                step()
            except (ApiFailure, OSError):
                pass  # the next change, or its retry by somebody else, comes back here

    # Node lifecycle: DiskPressure True is a taint.

    def _taint_nodes(self):
        for node in self._nodes.values():
            taints = node.get("spec", {}).get("taints") or []
            has = any(taint["key"] == PRESSURE_TAINT["key"] for taint in taints)
            wants = any(condition["type"] == "DiskPressure" and condition["status"] == "True"
                        for condition in node.get("status", {}).get("conditions") or [])
            if has == wants:
                continue
            new = [taint for taint in taints if taint["key"] != PRESSURE_TAINT["key"]]
            new += [PRESSURE_TAINT] if wants else []
            self._client.patch(f"/api/v1/nodes/{node['metadata']['name']}", [
                {"op": "test", "path": "/metadata/resourceVersion",
                 "value": node["metadata"]["resourceVersion"]},
                {"op": "add", "path": "/spec/taints", "value": new}], JSON_PATCH)

    # Scheduler: the first node by name that the pod tolerates.

    def _schedule(self):
        for pod in list(self._pods.values()):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or \
                    pod.get("status", {}).get("phase") != "Pending":
                continue
            nodes = sorted((node for node in self._nodes.values() if _fits(pod, node)),
                           key=lambda node: node["metadata"]["name"])
            if nodes:
                pod["spec"]["nodeName"] = name = nodes[0]["metadata"]["name"]
                self._client.create(pod_path(pod, "binding"), {
                    "apiVersion": "v1", "kind": "Binding",
                    "metadata": {"name": pod["metadata"]["name"]},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": name}})
            elif not any(condition["type"] == "PodScheduled" for condition
                         in pod["status"].get("conditions") or []):
                self._client.patch(pod_path(pod, "status"), {"status": {"conditions": [{
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0 nodes are available: untolerated taint",
                    "lastTransitionTime": now()}]}})

    # Job controller.

    def _run_jobs(self):
        for job in list(self._jobs.values()):
            status = job.get("status", {})
            if any(condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
                   for condition in status.get("conditions") or []):
                continue
            pods = [pod for pod in self._pods.values() if _owner(pod) == job["metadata"]["uid"]]
            active = [pod for pod in pods
                      if pod.get("status", {}).get("phase") in ("Pending", "Running")]
            failed = sum(pod.get("status", {}).get("phase") == "Failed" for pod in pods)
            failed = max(failed, status.get("failed", 0))
            succeeded = sum(pod.get("status", {}).get("phase") == "Succeeded" for pod in pods)
            if job["spec"].get("suspend"):
                self._suspend(job, active)
            elif succeeded:
                self._finish(job, "Complete", "", {"succeeded": 1, "failed": failed, "active": 0})
            elif failed > job["spec"].get("backoffLimit", 6):
                self._finish(job, "Failed", "BackoffLimitExceeded",
                             {"failed": failed, "active": 0})
            elif not active and not job["metadata"].get("deletionTimestamp"):
                self._start_pod(job, failed)

    def _start_pod(self, job, failed):
        metadata = job["metadata"]
        template = job["spec"]["template"]
        labels = {**(template.get("metadata", {}).get("labels") or {}),
                  "batch.kubernetes.io/job-name": metadata["name"],
                  "batch.kubernetes.io/controller-uid": metadata["uid"]}
        pod = self._client.create(f"/api/v1/namespaces/{metadata['namespace']}/pods", {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": f"{metadata['name']}-{uuid.uuid4().hex[:5]}", "labels": labels,
                         "annotations": template.get("metadata", {}).get("annotations") or {},
                         "ownerReferences": [{
                             "apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"],
                             "uid": metadata["uid"], "controller": True,
                             "blockOwnerDeletion": True}]},
            "spec": template["spec"]})
        self._pods[pod["metadata"]["uid"]] = pod  # else the next look would make another
        conditions = [condition for condition in job["status"].get("conditions") or []
                      if condition["type"] != "Suspended"]
        self._write_job(job, {"active": 1, "failed": failed, "ready": 0, "startTime": now(),
                              "conditions": conditions})

    def _suspend(self, job, active):
        for pod in active:
            if not pod["metadata"].get("deletionTimestamp"):
                self._client.delete(pod_path(pod))
        if not any(condition["type"] == "Suspended" and condition["status"] == "True"
                   for condition in job["status"].get("conditions") or []):
            self._write_job(job, {"active": 0, "startTime": None, "conditions": [
                {"type": "Suspended", "status": "True", "reason": "JobSuspended",
                 "lastTransitionTime": now()}]})

    def _finish(self, job, kind, reason, counts):
        self._write_job(job, {**counts, "completionTime": now() if kind == "Complete" else None,
                              "conditions": [{"type": kind, "status": "True", "reason": reason,
                                              "lastTransitionTime": now()}]})

    def _write_job(self, job, status):
        metadata = job["metadata"]
        path = f"/apis/batch/v1/namespaces/{metadata['namespace']}/jobs/{metadata['name']}/status"
        new = self._client.request("PATCH", path, {"status": status},
                                   "application/merge-patch+json")
        self._jobs[metadata["uid"]] = new


def _owner(pod):
    return next((reference["uid"] for reference in pod["metadata"].get("ownerReferences") or []
                 if reference.get("controller")), None)


def _fits(pod, node):
    if node.get("spec", {}).get("unschedulable"):
        return False
    tolerations = pod["spec"].get("tolerations") or []
    return all(any(_tolerates(toleration, taint) for toleration in tolerations)
               for taint in node.get("spec", {}).get("taints") or []
               if taint["effect"] != "PreferNoSchedule")


def _tolerates(toleration, taint):
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and \
        toleration.get("value", "") == taint.get("value", "")
