#include "agent/wire/registry_json.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "agent/core/text.h"
#include "agent/wire/json.h"
#include "agent/wire/time_text.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kRegistryMessageLimit = 300;
constexpr std::size_t kChallengeLimit = 16;
constexpr std::size_t kLoginLimit = 1000;
constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

Error invalid_reply(const std::string& what) {
  return Error{ErrorKind::InvalidArgument, what};
}

/// One line of printable text, bounded: it ends up in logs and Events.
std::string clean(std::string_view text) {
  std::string result(text.substr(0, kRegistryMessageLimit));
  std::ranges::replace_if(
      result, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return result;
}

Result<JsonDocument> parse_object(std::string_view body, const char* what) {
  Result<JsonDocument> document = parse_json(body, {.bytes = kAuthBytesLimit});
  if (!document) {
    return with_context(std::move(document).error(), what);
  }
  if (!document->root().is_object()) {
    return invalid_reply(std::string(what) + ": expected an object, got " +
                         document->root().type_name());
  }
  return document;
}

/// Header values are built from these: a line break would smuggle in a header.
bool is_header_safe(std::string_view text) {
  return std::ranges::none_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

// ---- XML, as far as AWS writes it
// ----------------------------------------------------------------

std::string decode_entities(std::string_view text) {
  struct Entity {
    std::string_view name;
    char character;
  };

  static constexpr std::array<Entity, 5> kEntities = {
      {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}}};
  std::string result;
  while (!text.empty()) {
    const auto* const entity = std::ranges::find_if(
        kEntities, [text](const Entity& e) { return text.starts_with(e.name); });
    if (entity != kEntities.end()) {
      result.push_back(entity->character);
      text.remove_prefix(entity->name.size());
    } else {
      result.push_back(text[0]);
      text.remove_prefix(1);
    }
  }
  return result;
}

/// The text of the first <tag>…</tag>; empty if there is none.
std::string xml_leaf(std::string_view body, const std::string& tag) {
  const std::size_t begin = body.find("<" + tag + ">");
  if (begin == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = body.substr(begin + tag.size() + 2);
  const std::size_t end = rest.find("</" + tag + ">");
  return end == std::string_view::npos ? std::string() : decode_entities(rest.substr(0, end));
}

bool is_xml(std::string_view body) {
  const std::size_t first = body.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && body[first] == '<';
}

// ---- credentials -------------------------------------------------------------------------------

Result<AwsCredentials> checked(AwsCredentials credentials, const char* what) {
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty()) {
    return invalid_reply(std::string(what) + ": no access key in the reply");
  }
  if (!is_header_safe(credentials.access_key_id) || !is_header_safe(credentials.session_token)) {
    return invalid_reply(std::string(what) + ": a line break in the credentials");
  }
  return credentials;
}

/// RFC 3339 text, or seconds since the epoch as JSON APIs send them.
std::optional<WallTime> read_time(JsonView view) {
  if (const std::optional<double> seconds = view.number()) {
    return wall_time_from_seconds(*seconds);
  }
  return parse_rfc3339(view.text());
}

Result<AwsCredentials> read_credentials(JsonView view, const char* token_key, const char* what) {
  AwsCredentials credentials;
  credentials.access_key_id = std::string(view["AccessKeyId"].text());
  credentials.secret_access_key = std::string(view["SecretAccessKey"].text());
  credentials.session_token = std::string(view[token_key].text());
  credentials.expires_at = read_time(view["Expiration"]);
  if (view["Expiration"] && !credentials.expires_at) {
    return invalid_reply(std::string(what) + ": an expiration that is no time");
  }
  return checked(std::move(credentials), what);
}

// ---- challenges --------------------------------------------------------------------------------

/// A cursor over a header value.
class HeaderScanner {
 public:
  explicit HeaderScanner(std::string_view text) : rest_(text) {}

  void skip(std::string_view any_of) {
    const std::size_t next = rest_.find_first_not_of(any_of);
    rest_.remove_prefix(next == std::string_view::npos ? rest_.size() : next);
  }

  std::string_view token() {
    const std::size_t end = rest_.find_first_of(" \t,=\"");
    const std::string_view token = rest_.substr(0, end);
    rest_.remove_prefix(token.size());
    return token;
  }

  bool take(char c) {
    if (!rest_.starts_with(c)) {
      return false;
    }
    rest_.remove_prefix(1);
    return true;
  }

  /// Behind the opening quote.
  std::string quoted() {
    std::string value;
    while (!rest_.empty() && !take('"')) {
      if (take('\\') && rest_.empty()) {
        break;
      }
      value.push_back(rest_[0]);
      rest_.remove_prefix(1);
    }
    return value;
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

// ---- keyring -----------------------------------------------------------------------------------

/// As Go's filepath.Match for one label without separators: *, ? and literal characters.
bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

struct HostParts {
  std::string_view host;
  std::string_view port;
  std::string_view path;
};

HostParts split_host(std::string_view text) {
  HostParts parts;
  const std::size_t slash = text.find('/');
  parts.host = text.substr(0, slash);
  parts.path = slash == std::string_view::npos ? std::string_view() : text.substr(slash);
  const std::size_t colon = parts.host.rfind(':');
  if (colon != std::string_view::npos && !parts.host.ends_with(']')) {
    parts.port = parts.host.substr(colon + 1);
    parts.host = parts.host.substr(0, colon);
  }
  return parts;
}

std::string login_key(std::string_view key) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (key.starts_with(scheme)) {
      key.remove_prefix(scheme.size());
    }
  }
  const HostParts parts = split_host(key);
  std::string_view path = parts.path;
  if (path.starts_with("/v1") || path.starts_with("/v2")) {
    path.remove_prefix(3);
  }
  if (path == "/") {
    path = {};
  }
  return std::string(key.substr(0, key.size() - parts.path.size())) + std::string(path);
}

std::optional<RegistryLogin> read_login(std::string_view key, JsonView entry) {
  RegistryLogin login;
  login.key = login_key(key);
  login.identity_token = std::string(entry["identitytoken"].text());
  std::string user(entry["username"].text());
  std::string password(entry["password"].text());
  if (entry["auth"]) {
    const std::optional<std::string> decoded = base64_decode(entry["auth"].text());
    const std::size_t colon = decoded ? decoded->find(':') : std::string::npos;
    if (colon == std::string::npos) {
      return std::nullopt;
    }
    user = decoded->substr(0, colon);
    password = decoded->substr(colon + 1);
  }
  while (password.ends_with('\0')) {  // Docker pads some of them
    password.pop_back();
  }
  if (user.empty() && login.identity_token.empty()) {
    return std::nullopt;
  }
  login.basic = base64_encode(user + ":" + password);
  return login;
}

}  // namespace

Result<BearerToken> parse_bearer_token(std::string_view body) {
  const JsonDocument document = TRY(parse_object(body, "token"));
  const JsonView root = document.root();
  BearerToken token;
  token.token = std::string(root["token"].text());
  if (token.token.empty()) {
    token.token = std::string(root["access_token"].text());
  }
  if (token.token.empty() || !is_header_safe(token.token)) {
    return invalid_reply("token: no token in the reply");
  }
  constexpr std::int64_t kLongest = 24 * 3600;
  if (const std::optional<std::int64_t> seconds = root["expires_in"].integer()) {
    token.lifetime = std::chrono::seconds(std::clamp<std::int64_t>(*seconds, 0, kLongest));
  }
  token.issued_at = parse_rfc3339(root["issued_at"].text());
  return token;
}

std::vector<Challenge> parse_challenges(std::string_view header) {
  std::vector<Challenge> challenges;
  HeaderScanner scanner(header);
  scanner.skip(" \t,");
  while (!scanner.at_end() && challenges.size() <= kChallengeLimit) {
    const std::size_t before = scanner.left();
    const std::string name = lower(scanner.token());
    scanner.skip(" \t");
    if (!scanner.take('=')) {
      challenges.push_back({.scheme = name, .parameters = {}});
    } else if (!challenges.empty() && !name.empty()) {
      scanner.skip(" \t");
      challenges.back().parameters[name] =
          scanner.take('"') ? scanner.quoted() : std::string(scanner.token());
    }
    scanner.skip(" \t,");
    if (scanner.left() == before) {
      break;  // a stray character
    }
  }
  std::erase_if(challenges, [](const Challenge& challenge) { return challenge.scheme.empty(); });
  return challenges;
}

ServiceError parse_registry_error(std::string_view body) {
  const Result<JsonDocument> document = parse_json(body, {.bytes = kAuthBytesLimit});
  if (document && document->root().is_object()) {
    const JsonView first = document->root()["errors"].at(0);
    const JsonView details = document->root()["details"];  // Docker Hub's token service
    const std::string_view message = first["message"] ? first["message"].text() : details.text();
    return ServiceError{clean(first["code"].text()), clean(message)};
  }
  return is_xml(body) ? ServiceError{} : ServiceError{"", clean(body)};
}

Result<AwsCredentials> parse_container_credentials(std::string_view body) {
  const JsonDocument document = TRY(parse_object(body, "container credentials"));
  return read_credentials(document.root(), "Token", "container credentials");
}

Result<AwsCredentials> parse_instance_credentials(std::string_view body) {
  const JsonDocument document = TRY(parse_object(body, "instance credentials"));
  const std::string_view code = document.root()["Code"].text();
  if (!code.empty() && code != "Success") {
    return Error{ErrorKind::FailedPrecondition, "instance credentials: " + clean(code)};
  }
  return read_credentials(document.root(), "Token", "instance credentials");
}

Result<AwsCredentials> parse_sts_credentials(std::string_view body) {
  if (body.size() > kAuthBytesLimit) {
    return Error{ErrorKind::ResourceExhausted, "STS: a reply of more than 64 KiB"};
  }
  if (!is_xml(body)) {
    const JsonDocument document = TRY(parse_object(body, "STS"));
    return read_credentials(document.root()["AssumeRoleWithWebIdentityResponse"]
                                           ["AssumeRoleWithWebIdentityResult"]["Credentials"],
                            "SessionToken",
                            "STS");
  }
  AwsCredentials credentials;
  credentials.access_key_id = xml_leaf(body, "AccessKeyId");
  credentials.secret_access_key = xml_leaf(body, "SecretAccessKey");
  credentials.session_token = xml_leaf(body, "SessionToken");
  credentials.expires_at = parse_rfc3339(xml_leaf(body, "Expiration"));
  if (!credentials.expires_at) {
    return invalid_reply("STS: an expiration that is no time");
  }
  return checked(std::move(credentials), "STS");
}

Result<EcrToken> parse_ecr_token(std::string_view body) {
  const JsonDocument document = TRY(parse_object(body, "ECR token"));
  const JsonView data = document.root()["authorizationData"].at(0);
  EcrToken token;
  token.basic = std::string(data["authorizationToken"].text());
  const std::optional<WallTime> expires_at = read_time(data["expiresAt"]);
  if (token.basic.empty() || !base64_decode(token.basic) || !expires_at) {
    return invalid_reply("ECR token: no token in the reply");
  }
  token.expires_at = *expires_at;
  return token;
}

ServiceError parse_aws_error(std::string_view body, std::string_view type_header) {
  if (is_xml(body)) {
    return ServiceError{clean(xml_leaf(body, "Code")), clean(xml_leaf(body, "Message"))};
  }
  ServiceError error;
  const Result<JsonDocument> document = parse_json(body, {.bytes = kAuthBytesLimit});
  if (document && document->root().is_object()) {
    JsonView root = document->root();
    root = root["Error"].is_object() ? root["Error"] : root;
    error.code = root["__type"].text().empty() ? std::string(root["Code"].text())
                                               : std::string(root["__type"].text());
    error.message = clean(root["message"] ? root["message"].text() : root["Message"].text());
  } else {
    error.message = clean(body);
  }
  if (error.code.empty()) {
    error.code = std::string(type_header);
  }
  error.code.erase(0, error.code.find('#') + 1);  // npos + 1 is 0
  error.code = clean(error.code.substr(0, error.code.find(':')));
  return error;
}

bool is_throttling(std::string_view code) {
  static constexpr std::array<std::string_view, 10> kCodes = {"ThrottlingException",
                                                              "Throttling",
                                                              "ThrottledException",
                                                              "RequestThrottled",
                                                              "RequestThrottledException",
                                                              "TooManyRequestsException",
                                                              "RequestLimitExceeded",
                                                              "SlowDown",
                                                              "LimitExceededException",
                                                              "BandwidthLimitExceeded"};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

Result<std::vector<RegistryLogin>> parse_docker_config(std::string_view body) {
  const JsonDocument document = TRY(parse_json(body, {.bytes = std::size_t{1} << 20}));
  const JsonView root = document.root();
  const JsonView auths = root["auths"].is_object() ? root["auths"] : root;
  if (!auths.is_object() || auths.size() > kLoginLimit) {
    return invalid_reply(std::string("a Docker config.json: expected a map of registries, got ") +
                         auths.type_name());
  }
  std::vector<RegistryLogin> logins;
  auths.for_each_member([&logins](std::string_view key, JsonView entry) {
    if (std::optional<RegistryLogin> login = read_login(key, entry)) {
      logins.push_back(*std::move(login));
    }
  });
  std::ranges::stable_sort(logins, std::greater<>(), &RegistryLogin::key);
  return logins;
}

bool login_matches(std::string_view key, std::string_view image) {
  HostParts pattern = split_host(key);
  HostParts target = split_host(image);
  if (pattern.port != target.port || !target.path.starts_with(pattern.path)) {
    return false;
  }
  while (!pattern.host.empty() || !target.host.empty()) {
    const std::size_t pattern_dot = pattern.host.find('.');
    const std::size_t target_dot = target.host.find('.');
    if ((pattern_dot == std::string_view::npos) != (target_dot == std::string_view::npos) ||
        !glob_matches(pattern.host.substr(0, pattern_dot), target.host.substr(0, target_dot))) {
      return false;
    }
    if (pattern_dot == std::string_view::npos) {
      return true;
    }
    pattern.host.remove_prefix(pattern_dot + 1);
    target.host.remove_prefix(target_dot + 1);
  }
  return false;
}

std::string base64_encode(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (k < count ? static_cast<std::uint8_t>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text.push_back(k <= count ? kBase64[(group >> (18 - 6 * k)) & 63U] : '=');
    }
  }
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) {
    return std::nullopt;
  }
  std::string bytes;
  std::uint32_t group = 0;
  unsigned bits = 0;
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) {
      return std::nullopt;
    }
    group = group << 6U | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes.push_back(static_cast<char>((group >> bits) & 255U));
      group &= (1U << bits) - 1;
    }
  }
  return bytes;
}

}  // namespace imagefs_guard
