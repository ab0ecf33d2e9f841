#!/usr/bin/python3
"""The signature check of the ECR stand-in, against a vector that botocore and curl agree on."""

import shutil
import subprocess
import unittest

from ecr_api import ACCESS_KEY, SECRET_KEY, TARGET, EcrApi, sign


class Signature(unittest.TestCase):
    def test_golden_vector(self):
        headers = {"content-type": "application/x-amz-json-1.1",
                   "host": "api.ecr.us-west-2.amazonaws.com", "x-amz-date": "20260102T030405Z",
                   "x-amz-security-token": "IQoJb3JpZ2luX2VjEXAMPLE//token==",
                   "x-amz-target": TARGET}
        self.assertEqual(
            sign("POST", "/", "", headers, b"{}", SECRET_KEY,
                 "20260102/us-west-2/ecr/aws4_request"),
            "8ab6ce9e221577084572b68ef2dc882149997b518dc09a78d8cdaa654528f25f")

    def curl(self, api, key, *headers):
        return subprocess.run(
            ["curl", "-s", "--noproxy", "*", "--aws-sigv4", "aws:amz:us-east-2:ecr",
             "-u", f"{ACCESS_KEY}:{key}", "-d", "{}",
             "-H", "Content-Type: application/x-amz-json-1.1", "-H", f"X-Amz-Target: {TARGET}",
             *(part for header in headers for part in ("-H", header)), api.url + "/"],
            capture_output=True, text=True, check=True).stdout

    def test_curl_is_believed(self):
        with EcrApi() as api:
            if shutil.which("curl") is None or "--aws-sigv4" not in subprocess.run(
                    ["curl", "--help", "all"], check=False, capture_output=True, text=True).stdout:
                self.skipTest("this curl can't sign")
            self.assertIn("authorizationToken", self.curl(api, SECRET_KEY, "Accept:"))
            self.assertIn("InvalidSignature", self.curl(api, "wrong"))
            api.session_token = "session"
            self.assertIn("InvalidSignature", self.curl(api, SECRET_KEY))
            self.assertIn("authorizationToken", self.curl(api, SECRET_KEY,
                                                          "X-Amz-Security-Token: session"))
            self.assertEqual(api.requests, 2)


if __name__ == "__main__":
    unittest.main()
