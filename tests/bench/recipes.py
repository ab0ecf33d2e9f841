"""What the images of the forecast benchmark are made of, from the bottom layer to the top.

They share bases, as real images do; what differs in form has the same files in it.
"""

import dataclasses

from trees import apt, debian, files, npm, pip, shell

QUICK = ("debian", "debian-estargz", "scipy", "scipy-zstd", "prefect", "prefect-chunked", "next",
         "records")


@dataclasses.dataclass(frozen=True)
class Recipe:
    name: str
    steps: tuple
    form: str = "gzip"  # of all its layers
    docker: bool = False  # media types of Docker instead of the OCI's


def recipes():
    base = debian("minbase")
    python = (base, apt("python3"))
    science = (*python, pip("numpy", "scipy"))
    pandas = (*science, pip("pandas", "pyarrow"))
    lab = (*python, pip("jupyterlab"))
    prefect = (*python, pip("prefect"))
    node = (base, apt("nodejs"))
    web = (base, apt("nginx", "postgresql-client", "curl", "git", "openssh-client"))
    go = (base, apt("golang-go"))
    jdk = (base, apt("openjdk-17-jdk-headless"))
    next_js = (*node, npm("next", "react", "react-dom"))
    records = (base, files("small", 60_000))
    return [
        Recipe("debian", (base,)),
        Recipe("debian-zstd", (base,), "zstd"),
        Recipe("debian-estargz", (base,), "estargz"),
        Recipe("debian-buildd", (debian("buildd"),), docker=True),
        Recipe("debian-standard", (debian("standard"),), docker=True),
        Recipe("web", web),
        Recipe("web-trimmed", (*web, shell(
            "rm -rf /usr/share/doc /usr/share/locale /usr/share/man; apt-get -q purge --yes git"))),
        Recipe("web-chmod", (*web, shell("chmod -R g+w /usr/lib /usr/share")), docker=True),
        Recipe("python", python, docker=True),
        Recipe("scipy", science),
        Recipe("scipy-estargz", science, "estargz"),
        Recipe("scipy-zstd", science, "zstd-sized"),
        Recipe("scipy-chunked", science, "zstd:chunked"),
        Recipe("pandas", pandas, docker=True),
        Recipe("pandas-zstd", pandas, "zstd"),
        Recipe("jupyterlab", lab),
        Recipe("jupyterlab-estargz", lab, "estargz"),
        Recipe("prefect", prefect, docker=True),
        Recipe("prefect-chunked", prefect, "zstd:chunked"),
        Recipe("dask", (*science, pip("dask[complete]"))),
        Recipe("torch", (*python, apt("python3-torch")), docker=True),
        Recipe("torch-model", (*python, apt("python3-torch"), files("random", 400))),
        Recipe("node", node),
        Recipe("next", next_js, docker=True),
        Recipe("next-estargz", next_js, "estargz"),
        Recipe("playwright", (*node, npm("playwright", "typescript"))),
        Recipe("webpack", (*node, npm("webpack", "webpack-cli", "eslint", "jest", "@babel/core",
                                      "@babel/preset-env", "lodash", "rxjs")), docker=True),
        Recipe("go", go),
        Recipe("go-zstd", go, "zstd"),
        Recipe("rust", (base, apt("rustc", "cargo")), docker=True),
        Recipe("jdk", jdk),
        Recipe("jdk-chunked", jdk, "zstd:chunked"),
        Recipe("model", (base, files("random", 300))),
        Recipe("model-tar", (base, files("random", 300)), "tar"),
        Recipe("zeros", (base, files("zeros", 300))),
        Recipe("records", records),
        Recipe("records-chunked", records, "zstd:chunked"),
        Recipe("links", (base, files("links", 20_000))),
    ]
