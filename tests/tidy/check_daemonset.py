#!/usr/bin/python3
"""Rules about daemonset/: what is shipped fits the agent's code, and gives away nothing.

check_daemonset.py [ROOT] prints "where: what is wrong" for each finding; exit 1 if there are any.
The checks take plain objects, so that render_test.py runs them on what kustomize and Helm make.
"""

import glob
import json
import os
import re
import sys

import yaml

AGENT, COORDINATOR = "imagefs-guard", "imagefs-guard-coordinator"
NAMESPACE = "imagefs-guard"
READS = {"get", "list", "watch"}
# Granted, and not used yet: by whom it will be. Once the code uses it, the line has to go.
PLANNED = {
    AGENT: {
        ("pods", "get"): "draining, #5", ("pods", "delete"): "draining, #5",
        ("pods/status", "patch"): "draining, #5",
        ("jobs", "get"): "draining, #5", ("jobs", "patch"): "draining, #5",
        ("leases", "get"): "draining, #5", ("leases", "create"): "draining, #5",
        ("leases", "update"): "draining, #5",
    },
}
NEVER_GRANTED = {"*", "secrets", "serviceaccounts/token", "pods/exec", "pods/attach",
                 "pods/eviction", "pods/portforward", "nodes/proxy", "pods/ephemeralcontainers"}
NEVER_VERBS = {"*", "deletecollection", "impersonate", "bind", "escalate"}
# No write right without an admission policy for it.
OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
WIDE_PATHS = {"/", "/etc", "/run", "/var", "/var/run", "/var/lib", "/var/log", "/proc", "/sys",
              "/dev", "/root", "/var/lib/kubelet", "/var/lib/kubelet/pods", "/var/lib/containerd"}


class Findings:
    def __init__(self):
        self.all = []

    def expect(self, truth, where, what):
        if not truth:
            self.all.append(f"{where}: {what}")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def name_of(item):
    return f"{item['kind']} {item['metadata']['name']}"


def of_kind(objects, *kinds):
    return [item for item in objects if item["kind"] in kinds]


# What the code says.


class Code:
    """Flags, commands, policy keys, names and API calls, read from the sources."""

    def __init__(self, root):
        flags = read(root, "agent/commands/flags.cc")
        self.flags = set(re.findall(r'add_option\(\s*"(--[a-z-]+)"', flags))
        self.commands = set(re.findall(r'add_subcommand\(\s*"([a-z]+)"', flags))
        policy = read(root, "agent/wire/policy.cc")
        self.policy_keys = re.findall(r'^    \{"([A-Za-z.]+)",', policy, re.M)
        self.pages = set(re.findall(r'path == "(/[a-z]*)"', read(root, "agent/status/pages.cc")))
        self.taint_key = re.search(r'taint_key = "([^"]+)"', read(root, "agent/core/policy.h"))[1]
        patches = read(root, "agent/wire/kube_patch.cc") + read(root, "agent/wire/kube_patch.h")
        self.condition = re.search(r'kConditionType\w* = "(\w+)"', patches)[1]
        self.controller = re.search(r'kReportingController = "([^"]+)"', patches)[1]
        self.uses = {AGENT: set(), COORDINATOR: set()}
        for folder in ("agent", "probes"):
            for path in glob.glob(os.path.join(root, folder, "**", "*.cc"), recursive=True):
                if not path.endswith("_test.cc"):
                    who = COORDINATOR if "coordinator" in path else AGENT
                    self.uses[who] |= api_calls(read(root, path))


VERBS = {"Get": "get", "List": "list", "Watch": "watch", "Create": "create", "Delete": "delete",
         "JsonPatch": "patch", "MergePatch": "patch", "StrategicMergePatch": "patch"}


def api_calls(text):
    """(resource, verb) of each request that a source makes."""
    found = set()
    for verb, resource in re.findall(
            r'verb = KubeVerb::(\w+);[^\n]*\n\s*\w+\.resource = "([^"]+)"', text):
        found.add(("nodes/configz" if resource == "configz" else resource, VERBS[verb]))
    for resource in re.findall(r'WatchSpec\{\s*"([^"]+)"', text):
        found |= {(resource, "list"), (resource, "watch")}
    if re.search(r"\bpatch_\(api, node_name", text):  # a NodePatch
        subresource = re.search(r'patch_\(api, node_name, "([^"]*)"\)', text)
        found.add(("nodes" + (subresource[1] if subresource else ""), "patch"))
    return found


# What is granted.


def rights_of(objects, account):
    """(resource, verb, API group) that roles give to an account."""
    bound = set()
    for binding in of_kind(objects, "ClusterRoleBinding", "RoleBinding"):
        if any(s["name"] == account for s in binding["subjects"]):
            bound.add((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
    rights = set()
    for role in of_kind(objects, "ClusterRole", "Role"):
        if (role["kind"], role["metadata"]["name"]) in bound:
            for rule in role["rules"]:
                rights |= {(resource, verb, group) for resource in rule["resources"]
                           for verb in rule["verbs"] for group in rule["apiGroups"]}
    return rights


def check_rights(findings, objects, code, drains=True):
    for account in (AGENT, COORDINATOR):
        rights = rights_of(objects, account)
        where = f"rights of {account}"
        findings.expect(rights, where, "none at all")
        for resource, verb, _ in sorted(rights):
            findings.expect(resource not in NEVER_GRANTED, where, f"{resource} is never granted")
            findings.expect(verb not in NEVER_VERBS, where, f"{verb} is never granted")
        granted = {(resource, verb) for resource, verb, _ in rights}
        for resource, verb in sorted(code.uses[account] - granted):
            findings.expect(False, where, f"the code needs {verb} {resource}")
        if account == AGENT and drains:
            check_unused(findings, where, granted, code.uses[account])
        check_admission(findings, objects, account, rights)


def check_unused(findings, where, granted, uses):
    for right in sorted(granted - uses):
        findings.expect(right in PLANNED[AGENT], where,
                        f"{right[1]} {right[0]} is granted, but the code never does it")
    for right in sorted(uses & set(PLANNED[AGENT])):
        findings.expect(False, "check_daemonset.py",
                        f"the code does {right[1]} {right[0]}: take it out of PLANNED")


def check_admission(findings, objects, account, rights):
    """Each write right has a policy of that account for that resource and operation."""
    covered = set()
    user = f"system:serviceaccount:{NAMESPACE}:{account}'"
    for policy in of_kind(objects, "ValidatingAdmissionPolicy"):
        if any(user in c["expression"] for c in policy["spec"]["matchConditions"]):
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
                covered |= {(resource, operation, group) for resource in rule["resources"]
                            for operation in rule["operations"] for group in rule["apiGroups"]}
    for resource, verb, group in sorted(rights):
        if verb not in READS:
            findings.expect((resource, OPERATIONS.get(verb), group) in covered,
                            f"rights of {account}", f"no admission policy for {verb} {resource}")


def check_policies(findings, objects, code):
    bindings = {b["spec"]["policyName"]: b["spec"]
                for b in of_kind(objects, "ValidatingAdmissionPolicyBinding")}
    for policy in of_kind(objects, "ValidatingAdmissionPolicy"):
        where, spec = name_of(policy), policy["spec"]
        findings.expect(spec.get("failurePolicy") == "Fail", where, "failurePolicy isn't Fail")
        binding = bindings.get(policy["metadata"]["name"], {})
        findings.expect(binding.get("validationActions") == ["Deny"], where, "no binding denies")
        for validation in spec["validations"]:
            findings.expect(validation.get("message") and validation.get("reason") == "Forbidden",
                            where, "a validation without message, or not answered by 403")
    text = json.dumps(of_kind(objects, "ValidatingAdmissionPolicy"))
    agents = json.dumps([policy for policy in of_kind(objects, "ValidatingAdmissionPolicy")
                         if f":{AGENT}'" in json.dumps(policy["spec"]["matchConditions"])])
    for what in (code.taint_key, code.condition, code.controller):
        findings.expect(f"'{what}'" in agents, "admission policies", f"don't name {what}")
    keys = set(re.findall(r"'([\w.-]+/[\w.-]+)'", text))
    strange = {k for k in keys if k.startswith("status-taint")} - {code.taint_key}
    findings.expect(not strange, "admission policies", f"another taint key: {strange}")


# Pods.


def check_workloads(findings, objects, code):
    for item in of_kind(objects, "DaemonSet", "Deployment"):
        where, pod = name_of(item), item["spec"]["template"]["spec"]
        labels = item["spec"]["template"]["metadata"]["labels"]
        findings.expect(item["spec"]["selector"]["matchLabels"].items() <= labels.items(), where,
                        "the selector doesn't match the pod's labels")
        findings.expect(item["metadata"]["namespace"] == NAMESPACE, where, "another namespace")
        check_pod(findings, where, pod)
        for container in pod["containers"] + pod.get("initContainers", []):
            check_container(findings, f"{where}, {container['name']}", container)
            check_arguments(findings, f"{where}, {container['name']}", container, code)
        check_volumes(findings, where, pod)
        if item["kind"] == "DaemonSet":
            check_daemonset(findings, where, item, pod, code)


def check_pod(findings, where, pod):
    for key in ("hostPID", "hostIPC", "shareProcessNamespace"):
        findings.expect(not pod.get(key), where, f"{key} is set")
    findings.expect(pod.get("automountServiceAccountToken") is False, where,
                    "the token is mounted by default instead of projected")
    findings.expect(pod.get("enableServiceLinks") is False, where, "service links are on")
    findings.expect(pod.get("serviceAccountName") in (AGENT, COORDINATOR), where, "no account")
    findings.expect(pod.get("priorityClassName", "").startswith("system-"), where,
                    "no system priority: the kubelet may evict it")
    security = pod.get("securityContext", {})
    findings.expect(security.get("seccompProfile") == {"type": "RuntimeDefault"}, where,
                    "seccomp isn't RuntimeDefault")
    root = security.get("runAsUser") == 0
    reaches_runtime = any("hostPath" in volume for volume in pod["volumes"])
    findings.expect(security.get("runAsNonRoot") is not root, where, "runAsNonRoot and runAsUser")
    findings.expect(not root or reaches_runtime, where, "is root without need")


def check_container(findings, where, container):
    security = container.get("securityContext", {})
    findings.expect(not security.get("privileged"), where, "privileged")
    findings.expect(security.get("allowPrivilegeEscalation") is False, where,
                    "allowPrivilegeEscalation isn't false")
    findings.expect(security.get("readOnlyRootFilesystem") is True, where, "writable root")
    findings.expect(security.get("capabilities") == {"drop": ["ALL"]}, where,
                    "capabilities are left")
    resources = container.get("resources", {})
    for kind, names in (("requests", ("cpu", "memory", "ephemeral-storage")),
                        ("limits", ("memory", "ephemeral-storage"))):
        for name in names:
            findings.expect(name in resources.get(kind, {}), where, f"no {kind} of {name}")
    image = container["image"]
    findings.expect(not image.endswith(":latest"), where, "the image's tag is latest")
    for variable in container.get("env", []):
        findings.expect("secretKeyRef" not in variable.get("valueFrom", {}), where,
                        f"{variable['name']} comes from a Secret")
    findings.expect(not container.get("envFrom"), where, "envFrom")


def check_arguments(findings, where, container, code):
    arguments = container.get("args", [])
    findings.expect(arguments and arguments[0] in code.commands, where,
                    f"the agent has no command {arguments[:1]}")
    for argument in arguments[1:]:
        findings.expect(argument.split("=")[0] in code.flags, where,
                        f"the agent has no flag {argument}")
        findings.expect("=" in argument, where, f"{argument}: write --flag=value")


def check_volumes(findings, where, pod):
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = [m for c in pod["containers"] for m in c.get("volumeMounts", [])]
    findings.expect({m["name"] for m in mounts} == set(volumes), where,
                    "volumes and their mounts differ")
    for volume in volumes.values():
        what = f"{where}, volume {volume['name']}"
        if "hostPath" in volume:
            path = volume["hostPath"]["path"]
            findings.expect(path.rstrip("/") not in WIDE_PATHS and path != "/", what,
                            f"{path} is too much of the host")
            findings.expect(volume["hostPath"].get("type") == "Directory", what,
                            "no type Directory: the kubelet would make a missing one")
        if "emptyDir" in volume:
            findings.expect(volume["emptyDir"].get("sizeLimit"), what, "no sizeLimit")
        findings.expect("secret" not in volume, what, "a Secret")
    for mount in mounts:
        volume = volumes.get(mount["name"], {})
        what = f"{where}, volume {mount['name']}"
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            continue
        findings.expect(mount.get("readOnly") is True, what,
                        "is writable: only memory is")
        if "hostPath" in volume:
            # Without it a mount below, as it was at the pod's start, would be kept busy for ever.
            findings.expect(mount.get("mountPropagation") == "HostToContainer", what,
                            "mountPropagation isn't HostToContainer")


def check_probes(findings, where, container, code):
    """Each probe asks for a page that the agent has, on the port that it listens on."""
    listens = [argument.rpartition(":")[2] for argument in container["args"]
               if argument.startswith("--listen=")]
    ports = {port["name"]: str(port["containerPort"]) for port in container.get("ports", [])}
    findings.expect(listens == list(ports.values()), where, "--listen and ports differ")
    for kind, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"),
                       ("readinessProbe", "/readyz")):
        get = container.get(kind, {}).get("httpGet", {})
        findings.expect(get.get("path") == path and path in code.pages, where,
                        f"{kind} doesn't ask for {path}")
        findings.expect(get.get("port") in ports, where, f"{kind} has another port")
    liveness = container.get("livenessProbe", {})
    patience = liveness.get("failureThreshold", 3) * liveness.get("periodSeconds", 10)
    findings.expect(patience >= 60, where, "livenessProbe: a busy node must not restart agents")


def check_network(findings, objects):
    """The port of the pages is reachable, and no other."""
    ports = {port["containerPort"] for item in of_kind(objects, "DaemonSet")
             for c in item["spec"]["template"]["spec"]["containers"] for port in c.get("ports", [])}
    for item in of_kind(objects, "NetworkPolicy"):
        open_ports = {port["port"] for rule in item["spec"].get("ingress", [])
                      for port in rule.get("ports", [{"port": "all"}])}
        findings.expect(open_ports == ports, name_of(item), f"opens {open_ports}, not {ports}")


def check_daemonset(findings, where, item, pod, code):
    findings.expect({"operator": "Exists"} in pod.get("tolerations", []), where,
                    "doesn't tolerate everything")
    update = item["spec"].get("updateStrategy", {}).get("rollingUpdate", {})
    ports = [port for c in pod["containers"] for port in c.get("ports", [])]
    surge = update.get("maxSurge") not in (None, 0, "0%")
    host_ports = pod.get("hostNetwork") and ports or [p for p in ports if p.get("hostPort")]
    findings.expect(surge != bool(host_ports), where,
                    "maxSurge, unless there are ports of the host, which two pods can't share")
    findings.expect(not surge or update.get("maxUnavailable") == 0, where,
                    "maxUnavailable isn't 0")
    for container in pod["containers"]:
        check_probes(findings, f"{where}, {container['name']}", container, code)
    names = {variable["name"] for c in pod["containers"] for variable in c.get("env", [])}
    findings.expect({"NODE_NAME", "HOST_IP"} <= names, where, "NODE_NAME and HOST_IP are missing")


# The rest.


def check_config(findings, objects, code):
    for item in of_kind(objects, "ConfigMap"):
        policy = yaml.safe_load(item["data"]["config.yaml"]) or {}
        names = {f"{key}.{inner}" if isinstance(value, dict) else key
                 for key, value in policy.items()
                 for inner in (value if isinstance(value, dict) else [""])}
        findings.expect(names <= set(code.policy_keys), name_of(item),
                        f"no keys of the policy: {names - set(code.policy_keys)}")


def check_objects(findings, objects, code, drains=True):
    """All that can be told from the objects of one way of installing."""
    kinds = {item["kind"] for item in objects}
    for kind in ("DaemonSet", "ConfigMap", "FlowSchema", "NetworkPolicy", "ServiceAccount"):
        findings.expect(kind in kinds, "objects", f"no {kind}")
    for account in of_kind(objects, "ServiceAccount"):
        findings.expect(account.get("automountServiceAccountToken") is False, name_of(account),
                        "its token is mounted by default")
    for namespace in of_kind(objects, "Namespace"):
        findings.expect(
            namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
            == "privileged", name_of(namespace), "hostPath volumes are refused here")
    check_rights(findings, objects, code, drains)
    check_policies(findings, objects, code)
    check_workloads(findings, objects, code)
    check_network(findings, objects)
    check_config(findings, objects, code)


def check_coordinator(findings, root, code):
    """Its Deployment is installed as soon as the binary has the command, and not before."""
    listed = "coordinator.yaml" in yaml.safe_load(
        read(root, "daemonset/base/kustomization.yaml"))["resources"]
    enabled = yaml.safe_load(
        read(root, "daemonset/helm/imagefs-guard/values.yaml"))["coordinator"]["enabled"]
    exists = "coordinator" in code.commands
    findings.expect(listed == exists, "daemonset/base/kustomization.yaml",
                    "coordinator.yaml is to be listed if and only if the agent has that command")
    findings.expect(enabled == exists, "daemonset/helm/imagefs-guard/values.yaml",
                    "coordinator.enabled is to be true if and only if the agent has that command")


def check_schema(findings, root, code):
    """The chart's schema knows the policy's keys."""
    schema = json.loads(read(root, "daemonset/helm/imagefs-guard/values.schema.json"))
    keys = set()
    for key, value in schema["definitions"]["policy"]["properties"].items():
        inner = value.get("properties")
        keys |= {f"{key}.{name}" for name in inner} if inner else {key}
    findings.expect(keys == set(code.policy_keys), "values.schema.json",
                    f"the policy's keys differ: {sorted(keys ^ set(code.policy_keys))}")


def base_objects(root):
    base = os.path.join(root, "daemonset", "base")
    objects = []
    for name in yaml.safe_load(read(base, "kustomization.yaml"))["resources"]:
        objects += [item for item in yaml.safe_load_all(read(base, name)) if item]
    return objects


def check(root):
    findings, code = Findings(), Code(root)
    check_objects(findings, base_objects(root), code)
    check_coordinator(findings, root, code)
    check_schema(findings, root, code)
    return findings.all


def main():
    default = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    findings = check(sys.argv[1] if len(sys.argv) > 1 else default)
    print("\n".join(findings) if findings else "check_daemonset: nothing to say")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
