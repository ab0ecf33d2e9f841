#pragma once
/// Takes out of a reply what its request had sent as a secret. Errors end up in logs, Events,
/// annotations and on the status page, and servers do quote requests in theirs: AWS the session
/// token in "SignatureDoesNotMatch", proxies and registries whole headers. Called by http_curl.cc
/// for every reply that is no success, so that nobody else has to think of it. Pure.

#include <string>
#include <vector>

#include "agent/io/http.h"

namespace imagefs_guard {

/// Tokens, passwords, keys and signatures of the request, each in the spellings in which a reply
/// may have it, the longest first. Those of less than four characters are left out.
[[nodiscard]] std::vector<std::string> secrets_of(const HttpRequest& request);

/// Body and headers of a reply that is no 2xx, without the request's secrets and without the
/// signatures of any presigned URL. Location stays as it
/// is: it is followed, and not shown.
void redact(const HttpRequest& request, HttpResponse& response);

}  // namespace imagefs_guard
