#!/usr/bin/python3
"""Turns status_page.html into a C++ source at build time: embed_page.py PAGE OUTPUT.

The hash of its script goes into its Content-Security-Policy (@SCRIPT_HASH@): a browser runs that
script and no other.
"""

import base64
import hashlib
import re
import sys


def main():
    page, output = sys.argv[1:]
    with open(page, encoding="utf-8") as file:
        text = file.read()
    script = re.search(r"<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = text.replace("@SCRIPT_HASH@", f"sha256-{digest}")
    data = ",".join(str(byte) for byte in text.encode())
    with open(output, "w", encoding="utf-8") as file:
        file.write('#include "agent/status/status_page.h"\n\nnamespace imagefs_guard {\n\n'
                   "namespace {\n\nconst unsigned char kPage[] = {" + data + "};\n\n}\n\n"
                   "std::string_view status_page_template() {\n"
                   "  return {reinterpret_cast<const char*>(kPage), sizeof(kPage)};\n}\n\n"
                   "}  // namespace imagefs_guard\n")


if __name__ == "__main__":
    main()
