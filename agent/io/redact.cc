#include "agent/io/redact.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "agent/core/text.h"
#include "agent/wire/percent_encoding.h"
#include "agent/wire/registry_json.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kSecretBytesMinimum = 4;
constexpr const char* kRedacted = "[redacted]";
constexpr std::array<std::string_view, 5> kSecretHeaders = {"authorization",
                                                            "cookie",
                                                            "proxy-authorization",
                                                            "x-amz-security-token",
                                                            "x-aws-ec2-metadata-token"};
/// Parts of the names of query and form fields whose values are secrets: X-Amz-Signature,
/// X-Amz-Credential, Key-Pair-Id, sig, WebIdentityToken, refresh_token, password.
constexpr std::array<std::string_view, 6> kSecretFields = {
    "credential", "key", "password", "secret", "sig", "token"};

/// JSON allows "\/", and some writers use it.
std::string with_escaped_slashes(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += c == '/' ? "\\/" : std::string(1, c);
  }
  return result;
}

void add(std::set<std::string>& secrets, std::string_view secret) {
  if (secret.size() < kSecretBytesMinimum) {
    return;
  }
  secrets.insert(std::string(secret));
  secrets.insert(with_escaped_slashes(secret));
  secrets.insert(percent_encode(secret));
}

/// "Bearer …" and "Basic …" without the word; of Basic also the password inside.
void add_authorization(std::set<std::string>& secrets, std::string_view value) {
  const std::size_t space = value.find(' ');
  if (space == std::string_view::npos) {
    add(secrets, value);
    return;
  }
  const std::string_view word = value.substr(space + 1);
  add(secrets, word);
  if (lower(value.substr(0, space)) != "basic") {
    return;
  }
  if (const std::optional<std::string> login = base64_decode(word)) {
    add(secrets, *login);
    const std::size_t colon = login->find(':');
    if (colon != std::string::npos) {
      add(secrets, std::string_view(*login).substr(colon + 1));
    }
  }
}

void add_header(std::set<std::string>& secrets, std::string_view header) {
  const std::size_t colon = header.find(':');
  if (colon == std::string_view::npos) {
    return;
  }
  const std::string name = lower(header.substr(0, colon));
  std::string_view value = header.substr(colon + 1);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  if (std::ranges::find(kSecretHeaders, name) != kSecretHeaders.end()) {
    add_authorization(secrets, value);
  }
}

/// "a=1&b=2", of a query or a form.
void add_fields(std::set<std::string>& secrets, std::string_view fields) {
  while (!fields.empty()) {
    const std::string_view field = fields.substr(0, fields.find('&'));
    fields.remove_prefix(std::min(field.size() + 1, fields.size()));
    const std::size_t equals = field.find('=');
    if (equals == std::string_view::npos) {
      continue;
    }
    const std::string name = lower(field.substr(0, equals));
    const bool is_secret = std::ranges::any_of(kSecretFields, [&name](std::string_view part) {
      return name.find(part) != std::string::npos;
    });
    if (is_secret) {
      add(secrets, field.substr(equals + 1));
      add(secrets, percent_decode(field.substr(equals + 1)));
    }
  }
}

void replace_all(std::string& text, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    for (std::size_t at = text.find(secret); at != std::string::npos;
         at = text.find(secret, at + std::string_view(kRedacted).size())) {
      text.replace(at, secret.size(), kRedacted);
    }
  }
}

/// Signed URLs that the server itself names: not ours to know, and as good as a password.
void replace_signatures(std::string& text) {
  constexpr std::array<std::string_view, 4> kNames = {
      "x-amz-signature=", "x-amz-credential=", "x-amz-security-token=", "&signature="};
  std::string lowered = lower(text);
  for (const std::string_view name : kNames) {
    for (std::size_t at = lowered.find(name); at != std::string::npos;
         at = lowered.find(name, at)) {
      at += name.size();
      const std::size_t end = std::min(text.find_first_of("& \t\r\n\"'<>\\,;)", at), text.size());
      text.replace(at, end - at, kRedacted);
      lowered.replace(at, end - at, kRedacted);
    }
  }
}

}  // namespace

std::vector<std::string> secrets_of(const HttpRequest& request) {
  std::set<std::string> secrets;
  for (const std::string& header : request.headers) {
    add_header(secrets, header);
  }
  const std::size_t question = request.url.find('?');
  if (question != std::string::npos) {
    add_fields(secrets, std::string_view(request.url).substr(question + 1));
  }
  add_fields(secrets, request.body);
  if (request.aws_signature.has_value()) {
    add(secrets, request.aws_signature->secret_access_key);
    add(secrets, request.aws_signature->access_key_id);
  }
  std::vector<std::string> sorted(secrets.begin(), secrets.end());
  std::ranges::stable_sort(sorted, std::ranges::greater{}, &std::string::size);
  return sorted;
}

void redact(const HttpRequest& request, HttpResponse& response) {
  if (response.status >= 200 && response.status <= 299) {
    return;
  }
  const std::vector<std::string> secrets = secrets_of(request);
  replace_all(response.body, secrets);
  replace_signatures(response.body);
  for (auto& [name, value] : response.headers) {
    if (name != "location") {
      replace_all(value, secrets);
      replace_signatures(value);
    }
  }
}

}  // namespace imagefs_guard
