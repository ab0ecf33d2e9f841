"""The shipped manifests, applied unchanged, and every write that the agent's token must not do.

The token is asked for as the kubelet does it: bound to the DaemonSet's own pod on this node. Each
request goes to the real API server; what must be refused is refused by RBAC or by the admission
policy of that name, what the agent needs works. Nothing of the agent itself runs.
"""

import http.client
import json
import os
import time

import lab as lab_module
from errors import Broken
from kube import MERGE, STRATEGIC, ApiError, Kube
from node import PAUSE
from processes import wait_until
from scenario import GUARDED, Scenario

NAMESPACE = "imagefs-guard"
KEY = "status-taint.cluster-autoscaler.kubernetes.io/imagefs-guard"
OTHER = "least-privilege-other"  # a Node without a kubelet
JSON_PATCH = "application/json-patch+json"
ALLOWED, BY_RBAC = "allowed", "RBAC"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


class TokenKube(Kube):
    """The API with a service account's token."""

    def __init__(self, lab, token):
        super().__init__(lab_module.API_SERVICE, 443, lab.authority.certificate)
        self.token = token

    def request(self, method, path, body=None, content_type="application/json"):
        connection = self.connect(20)
        headers = {"Content-Type": content_type, "Authorization": f"Bearer {self.token}"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        decoded = json.loads(text) if text.startswith("{") else {"text": text}
        if answer.status >= 300:
            raise ApiError(answer.status, decoded.get("message", text))
        return decoded


class LeastPrivilege(Scenario):
    name = "least-privilege"
    images = (PAUSE,)
    modes = (GUARDED,)

    def play(self, run):
        self.run, self.kube = run, run.lab.kube
        self.mine, self.own = run.node.name, f"/api/v1/nodes/{run.node.name}"
        self.pods = f"/api/v1/namespaces/{run.namespace}/pods"
        self.jobs = f"/apis/batch/v1/namespaces/{run.namespace}/jobs"
        self.tried = {ALLOWED: 0, BY_RBAC: 0, "policy": 0}
        started = time.monotonic()
        run.lab.kubectl("apply", "-k", os.path.join(lab_module.ROOT, "daemonset"))
        run.note(f"kubectl apply -k daemonset/: {time.monotonic() - started:.1f} s")
        try:
            self.try_all()
        finally:
            # The cluster is shared with the scenarios that follow; rights and policies may stay.
            run.lab.kubectl("delete", "daemonset", "-n", NAMESPACE, "imagefs-guard", "--wait=false")
            self.kube.delete(f"/api/v1/nodes/{OTHER}")

    def try_all(self):
        run = self.run
        self.make_objects()
        self.agent = TokenKube(run.lab, self.token("imagefs-guard", self.agent_pod()))
        self.unbound = TokenKube(run.lab, self.token("imagefs-guard"))
        self.coordinator = TokenKube(run.lab, self.token("imagefs-guard-coordinator"))
        self.wait_for_policies()
        self.check_types()
        for group in (
            self.try_node,
            self.try_node_status,
            self.try_pods,
            self.try_jobs,
            self.try_own_namespace,
            self.try_events,
            self.try_rbac,
            self.try_coordinator,
        ):
            group()
        run.note(", ".join(f"{count} {what}" for what, count in self.tried.items()))

    def expect_guarded(self, run):
        run.expect(sum(self.tried.values()) > 90, "Hardly anything was tried.")

    # What there is.

    def agent_pod(self):
        """The DaemonSet's pod on this node; its image can't be pulled here, which is no matter."""

        def bound():
            pods = self.kube.items(
                f"/api/v1/namespaces/{NAMESPACE}/pods",
                fieldSelector=f"spec.nodeName={self.mine}",
                labelSelector="app.kubernetes.io/component=agent",
            )
            return next((pod for pod in pods), None)

        return wait_until(bound, 30, "the DaemonSet's pod on the node")

    def token(self, account, pod=None):
        spec = {"expirationSeconds": 3607}
        if pod is not None:
            meta = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "uid": meta["uid"],
            }
        answer = self.kube.create(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        return answer["status"]["token"]

    def make_objects(self):
        run = self.run
        self.kube.create(
            "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": OTHER}}
        )
        absent = f"{lab_module.REGISTRY}/absent:1"
        waiting = {"name": "main", "image": absent}
        going = {"name": "going", "image": run.image(PAUSE).reference}
        self.make_pod("waiting", [waiting])
        self.make_pod("waiting-too", [waiting])
        self.make_pod("elsewhere", [waiting], node=OTHER)
        self.make_pod("unbound", [waiting], node=None)
        self.make_pod("running", [going])
        self.make_pod("half", [going, waiting])
        self.make_pod("init", [waiting], init=[going])
        self.make_pod("protected", [waiting], annotations={"imagefs-guard.io/protect": "true"})
        self.make_pod("critical", [waiting], priority="system-cluster-critical")
        self.make_pod("system", [waiting], namespace="kube-system")
        for name, suspended in (("free", False), ("paused", True), ("orphan", False)):
            self.make_job(name, suspended)

        def all_there():
            states = {p["metadata"]["name"]: p["status"] for p in self.kube.items(self.pods)}
            return (
                states["running"]["phase"] == "Running"
                and states["half"]["phase"] == states["init"]["phase"] == "Pending"
                and has_running(states["half"].get("containerStatuses"))
                and has_running(states["init"].get("initContainerStatuses"))
            )

        wait_until(all_there, 60, "the pods being as they shall be")

    def make_pod(self, name, containers, node="", init=(), annotations=None, priority=None,
                 namespace=None):
        spec = {
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 0,
            "containers": containers,
            "initContainers": list(init),
        }
        if node is None:
            spec["nodeSelector"] = {"nobody": "has-this"}
        else:
            spec["nodeName"] = node or self.mine
        if priority:
            spec["priorityClassName"] = priority
        self.kube.create(
            f"/api/v1/namespaces/{namespace or self.run.namespace}/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "annotations": annotations or {}},
                "spec": spec,
            },
        )

    def make_job(self, name, suspended):
        container = {"name": "main", "image": f"{lab_module.REGISTRY}/absent:1"}
        self.kube.create(
            self.jobs,
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name},
                "spec": {
                    "backoffLimit": 0,
                    "suspend": suspended,
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "nodeSelector": {"nobody": "has-this"},
                            "containers": [container],
                        }
                    },
                },
            },
        )

    def wait_for_policies(self):
        """The API server needs a moment to know them; until then everything would pass."""
        probes = [
            ("imagefs-guard-nodes", self.agent, self.own, {"metadata": {"labels": {"x": "y"}}}),
            (
                "imagefs-guard-coordinator-nodes",
                self.coordinator,
                self.own,
                {"metadata": {"labels": {"x": "y"}}},
            ),
        ]

        def known():
            return all(
                name in self.answer(client, "PATCH", path, body, MERGE, dry=True)[1]
                for name, client, path, body in probes
            )

        wait_until(known, 30, "the API server knowing the admission policies")

    def check_types(self):
        """What the API server itself finds wrong with the policies' expressions."""
        path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

        def checked():
            policies = [p for p in self.kube.items(path) if NAMESPACE in p["metadata"]["name"]]
            good = all("typeChecking" in p.get("status", {}) for p in policies)
            return policies if good else None

        for policy in wait_until(checked, 60, "the type check of the admission policies"):
            for warning in policy["status"]["typeChecking"].get("expressionWarnings") or []:
                self.run.expect(False, f"{policy['metadata']['name']}: {warning}")

    # Trying.

    def answer(self, client, method, path, body=None, kind="application/json", dry=False):
        try:
            client.request(method, path + ("?dryRun=All" if dry else ""), body, kind)
            return 200, ""
        except ApiError as error:
            return error.status, str(error)
        except (OSError, http.client.HTTPException) as error:
            raise Broken(f"{method} {path} has no answer: {error}") from error

    def attempt(self, what, want, method, path, body=None, kind=MERGE, client=None):
        """`want` is ALLOWED, BY_RBAC or the name of the policy that has to refuse it."""
        status, message = self.answer(client or self.agent, method, path, body, kind)
        if want == ALLOWED:
            self.run.expect(status == 200, f"Should be allowed, but: {what}: {message}.")
        elif want == BY_RBAC:
            good = status == 403 and "ValidatingAdmissionPolicy" not in message
            self.run.expect(good, f"RBAC should refuse: {what}: {status} {message}.")
        else:
            good = status == 403 and f"'{want}'" in message
            self.run.expect(good, f"{want} should refuse: {what}: {status} {message}.")
        self.tried[want if want in self.tried else "policy"] += 1

    def taints(self, *ours):
        """A patch that leaves the others' taints as they are."""
        node = self.kube.get(self.own)
        others = [t for t in node["spec"].get("taints") or [] if t["key"] != KEY]
        return [{"op": "add", "path": "/spec/taints", "value": [*others, *ours]}]

    def try_node(self):
        policy, own, other = "imagefs-guard-nodes", self.own, f"/api/v1/nodes/{OTHER}"
        label = {"metadata": {"labels": {"imagefs-guard.io/stage": "guard"}}}
        note = {"metadata": {"annotations": {"imagefs-guard.io/status": "{}"}}}
        taint = {"key": KEY, "effect": "NoSchedule"}
        self.attempt("own label", ALLOWED, "PATCH", own, label)
        self.attempt("own annotation", ALLOWED, "PATCH", own, note)
        for effect in ("PreferNoSchedule", "NoSchedule"):
            body = self.taints({"key": KEY, "effect": effect})
            self.attempt(f"own taint {effect}", ALLOWED, "PATCH", own, body, JSON_PATCH)
        self.attempt("no taint", ALLOWED, "PATCH", own, self.taints(), JSON_PATCH)
        self.attempt("label, other node", policy, "PATCH", other, label)
        self.attempt("annotation, other node", policy, "PATCH", other, note)
        body = [{"op": "add", "path": "/spec/taints", "value": [taint]}]
        self.attempt("taint, other node", policy, "PATCH", other, body, JSON_PATCH)
        self.attempt("label, token without node", policy, "PATCH", own, label, client=self.unbound)
        for key, effect in (
            (KEY, "NoExecute"),
            ("example.com/full", "NoSchedule"),
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ):
            body = self.taints({"key": key, "effect": effect})
            self.attempt(f"taint {key} {effect}", policy, "PATCH", own, body, JSON_PATCH)
        self.kube.patch(own, {"spec": {"taints": [{"key": "a.b/c", "effect": "NoSchedule"}]}})
        self.attempt("foreign taint gone", policy, "PATCH", own, {"spec": {"taints": [taint]}})
        self.kube.patch(own, {"spec": {"taints": []}})
        for what, body in {
            "cordon": {"spec": {"unschedulable": True}},
            "pod range": {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}},
            "provider": {"spec": {"providerID": "aws:///x/i-1"}},
            "foreign label": {"metadata": {"labels": {"example.com/a": "b"}}},
            "role label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            "label gone": {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
            "label changed": {"metadata": {"labels": {"kubernetes.io/hostname": "z"}}},
            "foreign annotation": {"metadata": {"annotations": {"example.com/a": "b"}}},
            "finalizer": {"metadata": {"finalizers": ["example.com/a"]}},
        }.items():
            self.attempt(what, policy, "PATCH", own, body)
        for verb, path in (("DELETE", own), ("PUT", own), ("POST", "/api/v1/nodes")):
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.mine}}
            self.attempt(f"{verb} Node", BY_RBAC, verb, path, body, "application/json")

    def try_node_status(self):
        policy, own = "imagefs-guard-nodes-status", self.own + "/status"
        other = f"/api/v1/nodes/{OTHER}/status"
        for what, want, path, kind in (
            ("own condition", ALLOWED, own, "ImageFilesystemRisk"),
            ("condition, other node", policy, other, "ImageFilesystemRisk"),
            ("Ready", policy, own, "Ready"),
            ("DiskPressure", policy, own, "DiskPressure"),
            ("new condition", policy, own, "KernelReady"),
        ):
            condition = {"type": kind, "status": "Unknown", "reason": "Trying", "message": "a"}
            body = {"status": {"conditions": [condition]}}
            self.attempt(what, want, "PATCH", path, body, STRATEGIC)
        gone = [{"$patch": "delete", "type": "ImageFilesystemRisk"}]
        body = {"status": {"conditions": gone}}
        self.attempt("own condition gone", ALLOWED, "PATCH", own, body, STRATEGIC)
        body = {"status": {"conditions": [{"$patch": "delete", "type": "MemoryPressure"}]}}
        self.attempt("foreign condition gone", policy, "PATCH", own, body, STRATEGIC)
        for what, body in {
            "capacity": {"status": {"capacity": {"example.com/gpu": "8"}}},
            "allocatable": {"status": {"allocatable": {"cpu": "1"}}},
            "addresses": {"status": {"addresses": [{"type": "InternalIP", "address": "10.9.9.9"}]}},
            "kubelet's port": {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
            "label by status": {"metadata": {"labels": {"imagefs-guard.io/stage": "clear"}}},
            "annotation by status": {"metadata": {"annotations": {"example.com/a": "b"}}},
        }.items():
            self.attempt(what, policy, "PATCH", own, body, STRATEGIC)

    def try_pods(self):
        policy, pods = "imagefs-guard-pods-status", self.pods
        system = "/api/v1/namespaces/kube-system/pods/system"
        target = {"type": "DisruptionTarget", "status": "True", "reason": "ImagePullExceedsDisk"}
        body = {"status": {"conditions": [target]}}
        bad = ("elsewhere", "unbound", "running", "half", "init", "protected", "critical")
        for name in bad:
            path = f"{pods}/{name}/status"
            self.attempt(f"condition of pod {name}", policy, "PATCH", path, body, STRATEGIC)
        self.attempt("condition, kube-system", policy, "PATCH", system + "/status", body, STRATEGIC)
        path = f"{pods}/waiting/status"
        self.attempt("condition of own pod", ALLOWED, "PATCH", path, body, STRATEGIC)
        for what, body in {
            "phase": {"status": {"phase": "Failed"}},
            "start time": {"status": {"startTime": "2024-01-01T00:00:00Z"}},
            "reason": {"status": {"reason": "Evicted"}},
            "Ready of a pod": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
            "pod's label by status": {"metadata": {"labels": {"app": "jupyterhub"}}},
        }.items():
            self.attempt(what, policy, "PATCH", path, body, STRATEGIC)
        policy = "imagefs-guard-pods"
        for name in bad:
            self.attempt(f"deletion of pod {name}", policy, "DELETE", f"{pods}/{name}")
        self.attempt("deletion in kube-system", policy, "DELETE", system)
        path = f"{pods}/waiting-too"
        self.attempt("deletion, token without node", policy, "DELETE", path, client=self.unbound)
        self.attempt("deletion of own pod", ALLOWED, "DELETE", path)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "waiting"}}
        for what, verb, path, body in (
            ("eviction", "POST", f"{pods}/waiting/eviction", eviction),
            ("label of a pod", "PATCH", f"{pods}/waiting", {"metadata": {"labels": {"a": "b"}}}),
            ("deletion of all pods", "DELETE", pods, None),
            ("new pod", "POST", pods, {"metadata": {"name": "new"}, "spec": {}}),
            ("exec", "POST", f"{pods}/running/exec?command=ls", None),
            ("log", "GET", f"{pods}/running/log", None),
        ):
            self.attempt(what, BY_RBAC, verb, path, body)

    def hold(self, node, **more):
        return json.dumps({"node": node, "v": 1, **more}, separators=(",", ":"))

    def job_patch(self, hold, suspend):
        body = {"metadata": {"annotations": {"imagefs-guard.io/hold": hold}}}
        if suspend is not None:
            body["spec"] = {"suspend": suspend}
        return body

    def try_jobs(self):
        policy, job = "imagefs-guard-jobs", f"{self.jobs}/free"
        mine, theirs = self.hold(self.mine), self.hold(OTHER)
        both = self.hold(OTHER, image='"node":"' + self.mine + '"')
        for what, body in {
            "suspend without hold": {"spec": {"suspend": True}},
            "hold without suspend": self.job_patch(mine, None),
            "hold for another node": self.job_patch(theirs, True),
            "hold for two nodes": self.job_patch(both + mine, True),
            "parallelism": {"spec": {"parallelism": 0}},
            "back-off limit": {"spec": {"backoffLimit": 5}},
            "deadline": {"spec": {"activeDeadlineSeconds": 1}},
            "time to live": {"spec": {"ttlSecondsAfterFinished": 0}},
            "foreign label": {"metadata": {"labels": {"prefect.io/flow-run-id": "x"}}},
            "foreign annotation": {"metadata": {"annotations": {"a": "b"}}},
            "finalizer": {"metadata": {"finalizers": ["example.com/a"]}},
            "owner": {"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": self.mine, "uid": "1"}]}},
        }.items():
            self.attempt(f"Job: {what}", policy, "PATCH", job, body)
        body = self.job_patch(mine, True)
        client = self.unbound
        self.attempt("Job: token without node", policy, "PATCH", job, body, client=client)
        self.attempt("Job: suspend with hold", ALLOWED, "PATCH", job, body)
        self.attempt("Job: resume", ALLOWED, "PATCH", job, self.job_patch(None, False))
        paused = f"{self.jobs}/paused"
        self.attempt("Job of others: resume", policy, "PATCH", paused, {"spec": {"suspend": False}})
        self.attempt("Job of others: take over", policy, "PATCH", paused, body)
        self.kube.patch(f"{self.jobs}/orphan", self.job_patch(theirs, True))
        for what, body in {
            "resume another node's": self.job_patch(None, False),
            "take another node's": self.job_patch(mine, True),
            "drop another node's": self.job_patch(None, None),
        }.items():
            self.attempt(f"Job: {what}", policy, "PATCH", f"{self.jobs}/orphan", body)
        for verb, path in (("DELETE", job), ("GET", self.jobs), ("PUT", job), ("POST", self.jobs)):
            body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "free"}}
            self.attempt(f"{verb} Job", BY_RBAC, verb, path, body, "application/json")

    def try_own_namespace(self):
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        maps = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        for what, want, name, client in (
            ("own Lease", ALLOWED, f"imagefs-guard.io-{self.mine}", self.agent),
            ("other node's Lease", "imagefs-guard-leases", f"imagefs-guard.io-{OTHER}", self.agent),
            ("Lease", "imagefs-guard-leases", "imagefs-guard-coordinator", self.agent),
            ("its Lease", ALLOWED, "imagefs-guard-coordinator", self.coordinator),
            ("agent's Lease", "imagefs-guard-coordinator-leases", "x", self.coordinator),
        ):
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": NAMESPACE},
            }
            self.attempt(what, want, "POST", leases, body, "application/json", client)
        sizes, merged = f"imagefs-guard-sizes-{self.mine}", "imagefs-guard-sizes"
        for what, want, name, client in (
            ("own sizes", ALLOWED, sizes, self.agent),
            ("other node's sizes", "imagefs-guard-configmaps", f"{merged}-{OTHER}", self.agent),
            ("merged sizes", "imagefs-guard-configmaps", merged, self.agent),
            ("merged sizes", ALLOWED, merged, self.coordinator),
            ("node's sizes", "imagefs-guard-coordinator-configmaps", "a", self.coordinator),
        ):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
            self.attempt(what, want, "POST", maps, body, "application/json", client)
        body = {"data": {"config.yaml": "mode: observe\n"}}
        path = f"{maps}/imagefs-guard-policy"
        self.attempt("policy", "imagefs-guard-configmaps", "PATCH", path, body)
        want, client = "imagefs-guard-coordinator-configmaps", self.coordinator
        self.attempt("policy", want, "PATCH", path, body, client=client)
        self.attempt("own sizes", ALLOWED, "PATCH", f"{maps}/{sizes}", {"data": {"a": "b"}})

    def try_events(self):
        def event(name, controller, instance):
            return {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": "default"},
                "eventTime": "2024-01-01T00:00:00.000000Z",
                "type": "Normal",
                "reason": "Trying",
                "action": "Try",
                "note": "a",
                "reportingController": controller,
                "reportingInstance": instance,
                "regarding": {"apiVersion": "v1", "kind": "Node", "name": self.mine},
            }

        policy, ours = "imagefs-guard-events", "imagefs-guard.io/agent"
        self.kube.create(EVENTS, event("lp-foreign", "kubelet", self.mine))
        for what, want, body in (
            ("own Event", ALLOWED, event("lp-own", ours, self.mine)),
            ("Event of the kubelet", policy, event("lp-kubelet", "kubelet", self.mine)),
            ("Event of another node", policy, event("lp-other", ours, OTHER)),
        ):
            self.attempt(what, want, "POST", EVENTS, body, "application/json")
        series = {"series": {"count": 2, "lastObservedTime": "2024-01-01T00:00:01.000000Z"}}
        self.attempt("own Event again", ALLOWED, "PATCH", f"{EVENTS}/lp-own", series)
        self.attempt("foreign Event", policy, "PATCH", f"{EVENTS}/lp-foreign", series)
        body = event("lp-c", "imagefs-guard.io/coordinator", "c")
        kind, client = "application/json", self.coordinator
        self.attempt("coordinator's Event", ALLOWED, "POST", EVENTS, body, kind, client)
        body, want = event("lp-d", ours, self.mine), "imagefs-guard-coordinator-events"
        self.attempt("Event as an agent", want, "POST", EVENTS, body, kind, client)

    def try_rbac(self):
        """What no policy needs to refuse, for neither account; and the reads that both need."""
        namespace = f"/api/v1/namespaces/{NAMESPACE}"
        accounts = f"{namespace}/serviceaccounts/imagefs-guard/token"
        for client in (self.agent, self.coordinator):
            for verb, path in (
                ("GET", "/api/v1/secrets"),
                ("GET", f"{namespace}/secrets/any"),
                ("POST", accounts),
                ("GET", f"{self.own}/proxy/configz"),
                ("POST", f"{self.pods}/waiting/binding"),
                ("GET", "/api/v1/configmaps"),
                ("DELETE", f"{namespace}/configmaps/imagefs-guard-policy"),
                ("DELETE", EVENTS),
                ("PATCH", "/apis/apps/v1/namespaces/imagefs-guard/daemonsets/imagefs-guard"),
                ("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/imagefs-guard"),
                ("DELETE", "/apis/admissionregistration.k8s.io/v1/"
                           "validatingadmissionpolicies/imagefs-guard-nodes"),
            ):
                self.attempt(f"{verb} {path}", BY_RBAC, verb, path, {}, client=client)
            for path in (self.own, "/api/v1/nodes", f"{self.pods}/waiting"):
                self.attempt(f"GET {path}", ALLOWED, "GET", path, client=client)
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.mine}"
        self.attempt("pods of the node", ALLOWED, "GET", path)
        self.attempt("its Job", ALLOWED, "GET", f"{self.jobs}/free")
        path = f"{self.jobs}?labelSelector=imagefs-guard.io%2Fhold%3Dtrue"
        self.attempt("held Jobs", ALLOWED, "GET", path, client=self.coordinator)

    def try_coordinator(self):
        policy, other = "imagefs-guard-coordinator-nodes", f"/api/v1/nodes/{OTHER}"
        client = self.coordinator
        taint = {"key": KEY, "effect": "NoSchedule"}
        foreign = {"key": "a.b/c", "effect": "NoExecute"}
        self.kube.patch(
            other,
            {
                "metadata": {
                    "labels": {"imagefs-guard.io/stage": "guard"},
                    "annotations": {"imagefs-guard.io/status": "{}"},
                },
                "spec": {"taints": [foreign, taint]},
            },
        )
        for what, body in {
            "foreign taint gone": {"spec": {"taints": [taint]}},
            "another effect": {"spec": {"taints": [foreign, {**taint, "effect": "NoExecute"}]}},
            "cordon": {"spec": {"unschedulable": True}},
            "our label changed": {"metadata": {"labels": {"imagefs-guard.io/stage": "clear"}}},
            "foreign label": {"metadata": {"labels": {"example.com/a": "b"}}},
            "our annotation written": {"metadata": {"annotations": {"imagefs-guard.io/x": "b"}}},
        }.items():
            self.attempt(f"coordinator: {what}", policy, "PATCH", other, body, client=client)
        for what, body in {
            "taint gone": {"spec": {"taints": [foreign]}},
            "label gone": {"metadata": {"labels": {"imagefs-guard.io/stage": None}}},
            "annotation gone": {"metadata": {"annotations": {"imagefs-guard.io/status": None}}},
        }.items():
            self.attempt(f"coordinator: {what}", ALLOWED, "PATCH", other, body, client=client)
        body = {"spec": {"taints": [foreign, taint]}}
        self.attempt("coordinator: new taint", policy, "PATCH", other, body, client=client)
        self.try_coordinator_status(other + "/status", client)
        policy, orphan = "imagefs-guard-coordinator-jobs", f"{self.jobs}/orphan"
        for what, path, body in (
            ("suspend", f"{self.jobs}/free", {"spec": {"suspend": True}}),
            ("resume without hold", f"{self.jobs}/paused", {"spec": {"suspend": False}}),
            ("write a hold", orphan, self.job_patch(self.hold("x"), True)),
            ("back-off limit", orphan, {"spec": {"backoffLimit": 3}}),
            ("foreign label", orphan, {"metadata": {"labels": {"a": "b"}}}),
        ):
            self.attempt(f"coordinator: {what}", policy, "PATCH", path, body, client=client)
        body = self.job_patch(None, False)
        body["metadata"]["annotations"]["imagefs-guard.io/last-hold"] = "x"
        self.attempt("coordinator: resume", ALLOWED, "PATCH", orphan, body, client=client)
        path = f"{self.pods}/waiting"
        self.attempt("coordinator: delete pod", BY_RBAC, "DELETE", path, client=client)

    def try_coordinator_status(self, path, client):
        policy = "imagefs-guard-coordinator-nodes-status"
        ours = {"type": "ImageFilesystemRisk", "status": "True", "reason": "a", "message": "b"}
        theirs = {"type": "KernelReady", "status": "True", "reason": "a", "message": "b"}
        self.kube.patch(path, {"status": {"conditions": [ours, theirs]}}, STRATEGIC)
        for what, want, condition in (
            ("condition changed", policy, {**ours, "status": "False"}),
            ("foreign condition gone", policy, {"$patch": "delete", "type": "KernelReady"}),
            ("condition gone", ALLOWED, {"$patch": "delete", "type": "ImageFilesystemRisk"}),
            ("condition written", policy, ours),
        ):
            body = {"status": {"conditions": [condition]}}
            self.attempt(f"coordinator: {what}", want, "PATCH", path, body, STRATEGIC, client)


def has_running(statuses):
    return any("running" in status.get("state", {}) for status in statuses or [])
