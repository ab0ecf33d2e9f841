"""A certificate authority of this run, by the openssl command."""

import os

from processes import run


class Authority:
    """Signs what the control plane, the nodes and the harness show each other."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.certificate, self.key = self.path("ca.crt"), self.path("ca.key")
        new_key(self.key)
        run(
            "openssl",
            "req",
            "-x509",
            "-new",
            "-key",
            self.key,
            "-subj",
            "/CN=imagefs-guard-test",
            "-days",
            "2",
            "-out",
            self.certificate,
        )

    def path(self, name):
        return os.path.join(self.folder, name)

    def issue(self, name, common_name, organization="", hosts=()):
        """Returns (certificate file, key file) for a client, or for a server if it has hosts."""
        certificate, key, request = (self.path(f"{name}.{ext}") for ext in ("crt", "key", "csr"))
        extensions = self.path(f"{name}.ext")
        subject = (f"/O={organization}" if organization else "") + f"/CN={common_name}"
        new_key(key)
        run("openssl", "req", "-new", "-key", key, "-subj", subject, "-out", request)
        with open(extensions, "w", encoding="utf-8") as f:
            f.write("basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth,serverAuth\n")
            if hosts:
                kinds = ["IP" if host.replace(".", "").isdigit() else "DNS" for host in hosts]
                names = ",".join(f"{kind}:{host}" for kind, host in zip(kinds, hosts))
                f.write(f"subjectAltName={names}\n")
        run(
            "openssl",
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.certificate,
            "-CAkey",
            self.key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            extensions,
            "-out",
            certificate,
        )
        return certificate, key


def new_key(path):
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    os.chmod(path, 0o600)
