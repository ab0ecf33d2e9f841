#include "agent/registry/reference.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "agent/core/text.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kNameLimit = 255;
constexpr std::size_t kTagLimit = 128;
constexpr std::size_t kReferenceLimit = 1024;
constexpr std::size_t kHexDigest = 64;

bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}

bool is_alphanumeric(char c) {
  return is_digit(c) || is_lower(c) || is_upper(c);
}

Error bad(std::string_view text, const std::string& why) {
  constexpr std::size_t kExcerpt = 120;
  return Error{ErrorKind::InvalidArgument,
               "image \"" + std::string(text.substr(0, kExcerpt)) + "\": " + why};
}

/// [a-z0-9]+ joined by one of . _ __ or any number of -.
bool is_path_component(std::string_view text) {
  if (text.empty() || !(is_lower(text.front()) || is_digit(text.front())) ||
      !(is_lower(text.back()) || is_digit(text.back()))) {
    return false;
  }
  std::size_t i = 0;
  while (i < text.size()) {
    std::size_t end = i;
    while (end < text.size() && !is_lower(text[end]) && !is_digit(text[end])) {
      ++end;
    }
    const std::string_view separator = text.substr(i, end - i);
    const bool dashes = separator.find_first_not_of('-') == std::string_view::npos;
    if (!dashes && separator != "." && separator != "_" && separator != "__") {
      return false;
    }
    i = end == i ? i + 1 : end;
  }
  return true;
}

bool is_repository(std::string_view text) {
  while (true) {
    const std::size_t slash = text.find('/');
    if (!is_path_component(text.substr(0, slash))) {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(slash + 1);
  }
}

bool is_tag(std::string_view text) {
  const auto is_word = [](char c) { return is_alphanumeric(c) || c == '_'; };
  return !text.empty() && text.size() <= kTagLimit && is_word(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return is_word(c) || c == '.' || c == '-'; });
}

bool is_host_name(std::string_view host) {
  while (true) {
    const std::size_t dot = host.find('.');
    const std::string_view label = host.substr(0, dot);
    if (label.empty() || label.front() == '-' || label.back() == '-' ||
        !std::ranges::all_of(label, [](char c) { return is_alphanumeric(c) || c == '-'; })) {
      return false;
    }
    if (dot == std::string_view::npos) {
      return true;
    }
    host.remove_prefix(dot + 1);
  }
}

bool is_domain(std::string_view domain) {
  if (domain.starts_with('[')) {
    const std::size_t end = domain.find(']');
    const std::string_view rest = end == std::string_view::npos ? "x" : domain.substr(end + 1);
    return (rest.empty() || (rest.starts_with(':') && is_port(rest.substr(1)))) &&
           std::ranges::all_of(domain.substr(1, end - 1), [](char c) {
             return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.';
           });
  }
  const std::size_t colon = domain.find(':');
  return is_host_name(domain.substr(0, colon)) &&
         (colon == std::string_view::npos || is_port(domain.substr(colon + 1)));
}

/// Whether the first segment is a host, as Docker has always guessed.
bool looks_like_domain(std::string_view segment) {
  return segment == "localhost" || segment.find_first_of(".:[") != std::string_view::npos ||
         std::ranges::any_of(segment, is_upper);
}

bool is_image_id(std::string_view text) {
  if (text.starts_with("sha256:")) {
    text.remove_prefix(std::string_view("sha256:").size());
  }
  return text.size() == kHexDigest &&
         std::ranges::all_of(text, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

void split_domain(std::string_view name, ImageReference& reference) {
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || !looks_like_domain(name.substr(0, slash))) {
    reference.domain = "docker.io";
    reference.repository = std::string(name);
  } else {
    reference.domain = std::string(name.substr(0, slash));
    reference.repository = std::string(name.substr(slash + 1));
  }
  std::ranges::transform(reference.domain, reference.domain.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  if (reference.domain == "index.docker.io") {
    reference.domain = "docker.io";
  }
  if (reference.domain == "docker.io" && reference.repository.find('/') == std::string::npos) {
    reference.repository.insert(0, "library/");
  }
}

}  // namespace

bool is_port(std::string_view text) {
  constexpr std::size_t kDigits = 5;
  return !text.empty() && text.size() <= kDigits && std::ranges::all_of(text, is_digit);
}

Result<ImageReference> parse_image_reference(std::string_view text) {
  if (text.empty() || text.size() > kReferenceLimit) {
    return bad(text, text.empty() ? "empty" : "too long");
  }
  if (is_image_id(text)) {
    return bad(text, "an image ID, not a name that a registry could resolve");
  }
  ImageReference reference;
  std::string_view name = text;
  const std::size_t at = name.find('@');
  if (at != std::string_view::npos) {
    reference.digest = parse_digest(name.substr(at + 1));
    if (!reference.digest) {
      return bad(text, "its digest is no sha256 digest");
    }
    name = name.substr(0, at);
  }
  const std::size_t colon = name.rfind(':');
  const std::size_t slash = name.rfind('/');
  if (colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash)) {
    reference.tag = std::string(name.substr(colon + 1));
    if (!is_tag(reference.tag)) {
      return bad(text, "its tag is malformed");
    }
    name = name.substr(0, colon);
  }
  split_domain(name, reference);
  if (!is_domain(reference.domain)) {
    return bad(text, "its host is malformed");
  }
  if (reference.repository.size() > kNameLimit || !is_repository(reference.repository)) {
    return bad(text, "its repository is malformed");
  }
  if (reference.digest) {
    reference.tag.clear();
  } else if (reference.tag.empty()) {
    reference.tag = "latest";
  }
  return reference;
}

std::string canonical_image_name(std::string_view text) {
  const Result<ImageReference> reference = parse_image_reference(text);
  if (!reference) {
    return std::string(text);
  }
  return reference->name() + (reference->digest ? "@" : ":") + reference->tag_or_digest();
}

std::optional<EcrHost> parse_ecr_host(std::string_view host) {
  constexpr std::size_t kAccountDigits = 12;
  static constexpr std::array<std::string_view, 9> kSuffixes = {"amazonaws.com.cn",
                                                                "amazonaws.com",
                                                                "amazonaws.eu",
                                                                "on.aws",
                                                                "on.amazonwebservices.com.cn",
                                                                "sc2s.sgov.gov",
                                                                "c2s.ic.gov",
                                                                "cloud.adc-e.uk",
                                                                "csp.hci.ic.gov"};
  EcrHost ecr;
  ecr.account = std::string(host.substr(0, kAccountDigits));
  if (ecr.account.size() != kAccountDigits || !std::ranges::all_of(ecr.account, is_digit)) {
    return std::nullopt;
  }
  host.remove_prefix(kAccountDigits);
  if (!host.starts_with(".dkr.ecr") && !host.starts_with(".dkr-ecr")) {
    return std::nullopt;
  }
  ecr.dual_stack = host.starts_with(".dkr-ecr");
  host.remove_prefix(std::string_view(".dkr.ecr").size());
  if (host.starts_with("-fips")) {
    ecr.fips = true;
    host.remove_prefix(std::string_view("-fips").size());
  }
  if (!host.starts_with('.')) {
    return std::nullopt;
  }
  host.remove_prefix(1);
  const std::size_t dot = host.find('.');
  ecr.region = std::string(host.substr(0, dot));
  ecr.suffix = dot == std::string_view::npos ? "" : std::string(host.substr(dot + 1));
  const bool region_ok = !ecr.region.empty() && is_alphanumeric(ecr.region[0]) &&
                         std::ranges::all_of(ecr.region, [](char c) {
                           return is_alphanumeric(c) || c == '-' || c == '_';
                         });
  if (!region_ok || std::ranges::find(kSuffixes, ecr.suffix) == kSuffixes.end()) {
    return std::nullopt;
  }
  // The suffix must be that of the region's partition: a token of one goes to no host of another.
  const std::string suffix = aws_dns_suffix(ecr.region);
  const std::string_view dual_suffix =
      suffix == "amazonaws.com.cn" ? "on.amazonwebservices.com.cn" : "on.aws";
  if (ecr.suffix != suffix && ecr.suffix != dual_suffix) {
    return std::nullopt;
  }
  return ecr;
}

std::string aws_dns_suffix(std::string_view region) {
  struct Partition {
    std::string_view region_prefix;
    std::string_view suffix;
  };

  static constexpr std::array<Partition, 6> kPartitions = {{{"cn-", "amazonaws.com.cn"},
                                                            {"us-iso-", "c2s.ic.gov"},
                                                            {"us-isob-", "sc2s.sgov.gov"},
                                                            {"eu-isoe-", "cloud.adc-e.uk"},
                                                            {"us-isof-", "csp.hci.ic.gov"},
                                                            {"eusc-", "amazonaws.eu"}}};
  for (const Partition& partition : kPartitions) {
    if (region.starts_with(partition.region_prefix)) {
      return std::string(partition.suffix);
    }
  }
  return "amazonaws.com";
}

std::string ecr_api_url(const EcrHost& host) {
  if (host.suffix == "on.aws") {
    return "https://" + std::string(host.fips ? "ecr-fips." : "ecr.") + host.region + ".api.aws";
  }
  if (host.suffix == "on.amazonwebservices.com.cn") {
    return "https://ecr." + host.region + ".api.amazonwebservices.com.cn";
  }
  return "https://api." + std::string(host.fips ? "ecr-fips." : "ecr.") + host.region + "." +
         aws_dns_suffix(host.region);
}

}  // namespace imagefs_guard
