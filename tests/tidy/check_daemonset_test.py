#!/usr/bin/python3
"""Breaks each rule of check_daemonset.py once, in a copy, and expects to be told."""

import os
import shutil
import tempfile
import unittest

import check_daemonset

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = "daemonset/base/"
DAEMONSET, RBAC = BASE + "daemonset.yaml", BASE + "rbac.yaml"
ADMISSION, POLICY = BASE + "admission.yaml", BASE + "policy.yaml"
# (file, text in it, what it becomes, words of the finding)
EVERYWHERE = (ADMISSION, "agent/commands/flags.cc")  # several commands have the same flag
CASES = [
    (DAEMONSET, "--image-path=", "--image-dir=", "no flag --image-dir"),
    (DAEMONSET, "- run\n", "- walk\n", "no command"),
    (DAEMONSET, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "writable root"),
    (DAEMONSET, "drop: [ALL]", "drop: [NET_RAW]", "capabilities are left"),
    (DAEMONSET, "privileged: false", "privileged: true", "privileged"),
    (DAEMONSET, "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "Escalation"),
    (DAEMONSET, "path: /run/containerd\n", "path: /run\n", "too much of the host"),
    (DAEMONSET, "type: Directory", "type: DirectoryOrCreate", "no type Directory"),
    (DAEMONSET, "          readOnly: true  # connecting", "          # connecting", "is writable"),
    (DAEMONSET, "mountPropagation: HostToContainer", "mountPropagation: None", "isn't HostToCont"),
    (DAEMONSET, "- operator: Exists", "- operator: Equal", "tolerate everything"),
    (DAEMONSET, "maxUnavailable: 0", "maxUnavailable: 1", "maxUnavailable isn't 0"),
    (DAEMONSET, "            ephemeral-storage: 128Mi", "            cpu: 1", "of ephemeral-stor"),
    (DAEMONSET, "system-node-critical", "default", "no system priority"),
    (DAEMONSET, "      enableServiceLinks: false", "      hostPID: true", "hostPID is set"),
    (DAEMONSET, "type: RuntimeDefault", "type: Unconfined", "seccomp"),
    (DAEMONSET, "- name: HOST_IP", "- name: HOST", "HOST_IP are missing"),
    (DAEMONSET, "sizeLimit: 1Mi", "medium: ''", "no sizeLimit"),
    (DAEMONSET, "--listen=:9808", "--listen=:9809", "--listen and ports differ"),
    (DAEMONSET, "            path: /readyz", "            path: /ready", "doesn't ask for /readyz"),
    (DAEMONSET, "            port: http", "            port: https", "startupProbe has another"),
    (DAEMONSET, "          failureThreshold: 6\n", "", "must not restart agents"),
    (BASE + "networkpolicy.yaml", "port: 9808", "port: 9809", "not {9808}"),
    (RBAC, "resources: [nodes/configz]", "resources: [nodes/proxy]", "nodes/proxy is never"),
    (RBAC, "resources: [nodes/configz]", "resources: [nodes]", "needs get nodes/configz"),
    (RBAC, "verbs: [get, list, watch, patch]\n- apiGroups: [\"\"]\n  resources: [nodes/status]",
     "verbs: [get, list, watch, update]\n- apiGroups: [\"\"]\n  resources: [nodes/status]",
     "code never does it"),
    (RBAC, "verbs: [create, patch]", "verbs: ['*']", "* is never granted"),
    (RBAC, "  resources: [pods]\n  verbs: [delete]", "  resources: [services]\n  verbs: [delete]",
     "no admission policy for delete services"),
    (RBAC, "enforce: privileged", "enforce: baseline", "hostPath volumes are refused"),
    (ADMISSION, "failurePolicy: Fail", "failurePolicy: Ignore", "failurePolicy isn't Fail"),
    (ADMISSION, "validationActions: [Deny]", "validationActions: [Warn]", "no binding denies"),
    (ADMISSION, "    reason: Forbidden\n", "", "not answered by 403"),
    (ADMISSION, "'ImageFilesystemRisk'", "'ImageRisk'", "don't name ImageFilesystemRisk"),
    (ADMISSION, "kubernetes.io/imagefs-guard'", "kubernetes.io/guard'", "don't name status-taint"),
    (POLICY, "mode: enforce", "moed: enforce", "no keys of the policy"),
    (BASE + "kustomization.yaml", "- coordinator.yaml\n", "", "if and only if"),
    ("daemonset/helm/imagefs-guard/values.schema.json", '"tagLifetime"', '"tagLife"',
     "the policy's keys differ"),
    ("agent/commands/flags.cc", '"--policy"', '"--rules"', "no flag --policy"),
]


class Rules(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="check-daemonset-")
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("daemonset/base", "daemonset/helm", "agent", "probes"):
            shutil.copytree(os.path.join(ROOT, folder), os.path.join(self.root, folder))

    def test_the_tree_is_clean(self):
        self.assertEqual(check_daemonset.check(self.root), [])

    def test_each_rule(self):
        for path, old, new, words in CASES:
            with self.subTest(words):
                full = os.path.join(self.root, path)
                with open(full, encoding="utf-8") as f:
                    text = f.read()
                self.assertIn(old, text, path)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text.replace(old, new, -1 if path in EVERYWHERE else 1))
                found = check_daemonset.check(self.root)
                with open(full, "w", encoding="utf-8") as f:
                    f.write(text)
                self.assertIn(words, "\n".join(found))


if __name__ == "__main__":
    unittest.main()
