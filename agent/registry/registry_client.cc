#include "agent/registry/registry_client.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "agent/core/sha256.h"
#include "agent/registry/reference.h"
#include "agent/registry/target.h"

namespace imagefs_guard {

namespace {

constexpr std::size_t kTagsMaximum = 1024;
constexpr std::int64_t kRangeLimit = std::int64_t{1} << 20;

Error mismatch(const std::string& what, const Digest& wanted, const Digest& got) {
  return Error{ErrorKind::InvalidArgument,
               what + " has digest " + to_string(got) + " instead of " + to_string(wanted)};
}

/// "bytes 100-199/5000" begins where we asked.
bool range_begins_at(std::string_view content_range, std::int64_t offset) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) {
    return false;
  }
  content_range.remove_prefix(kUnit.size());
  std::int64_t begin = -1;
  const auto [end, error] =
      std::from_chars(content_range.data(), content_range.data() + content_range.size(), begin);
  return error == std::errc() && begin == offset;
}

}  // namespace

/// One reference on its way to a manifest with its config. Steps follow each other by callbacks;
/// `wanted_` is the digest that the next body must have.
class RegistryClient::Resolution {
 public:
  Resolution(RegistryClient& owner, std::string key, ImageReference reference)
      : owner_(owner), key_(std::move(key)), reference_(std::move(reference)) {}

  void add(ResolveHandlers handlers) {
    if (announced_) {
      handlers.on_manifest(manifest_.image);
    }
    handlers_.push_back(std::move(handlers));
  }

  void begin() {
    Result<RegistryTarget> target = make_target(reference_, owner_.setup_.policy);
    if (!target) {
      finish(std::move(target).error());
      return;
    }
    target_ = *std::move(target);
    wanted_ = owner_.known_digest(reference_);
    step();
  }

 private:
  /// From what is known about `wanted_` to the next thing that must be fetched.
  void step() {
    if (wanted_) {
      if (const CachedManifest* known = owner_.cache_.find(*wanted_)) {
        use_manifest(known->parsed, known->complete);
        return;
      }
      if (const ImageIndex* index = owner_.cache_.find_index(*wanted_)) {
        use_index(*index);
        return;
      }
      const auto [other, first] = owner_.fetching_.try_emplace(*wanted_);
      if (!first) {
        other->second.push_back([this] { step(); });  // it is in the cache then, or ours to fetch
        return;
      }
      fetching_ = wanted_;
    }
    fetch_manifest();
  }

  void fetch_manifest() {
    RegistryRequest request;
    request.target = target_;
    request.path = "/v2/" + target_.repository + "/manifests/" +
                   (wanted_ ? to_string(*wanted_) : reference_.tag);
    request.headers = {"Accept: " + std::string(kManifestAccept)};
    request.body_limit = kManifestBytesLimit;
    owner_.http_.get(std::move(request), [this](Result<HttpResponse> response) {
      const Result<void> taken = take_manifest(std::move(response));
      wake_others();
      if (taken) {
        step();
      } else {
        finish(taken.error());
      }
    });
  }

  /// Puts the body into the cache; `wanted_` is its digest then.
  Result<void> take_manifest(Result<HttpResponse> response) {
    if (!response) {
      return with_context(std::move(response).error(), "manifest");
    }
    const Digest digest = sha256(response->body);
    if (wanted_ && digest != *wanted_) {
      return mismatch("the manifest from " + target_.host, *wanted_, digest);
    }
    // Not every registry sends it with a GET. One that does and lies is not to be trusted.
    const std::optional<Digest> claimed = parse_digest(response->header("docker-content-digest"));
    if (claimed && *claimed != digest) {
      return mismatch("the manifest from " + target_.host, *claimed, digest);
    }
    Result<IndexOrManifest> parsed = parse_manifest(
        {response->body, response->header("content-type"), digest}, owner_.setup_.platform);
    if (!parsed) {
      return with_context(std::move(parsed).error(), "manifest");
    }
    if (!wanted_) {
      owner_.remember_tag(key_, digest);
    }
    wanted_ = digest;
    if (parsed->index) {
      owner_.cache_.add_index(digest, *std::move(parsed->index));
    } else {
      owner_.cache_.add(*std::move(parsed->manifest), false, owner_.loop_.now());
    }
    return {};
  }

  void wake_others() {
    if (!fetching_) {
      return;
    }
    auto node = owner_.fetching_.extract(*fetching_);
    fetching_.reset();
    if (!node.empty()) {
      for (const std::function<void()>& wake : node.mapped()) {
        wake();
      }
    }
  }

  /// As containerd: the best entry is the only one that is tried.
  void use_index(const ImageIndex& index) {
    if (++depth_ > kIndexDepthLimit) {
      finish(Error{ErrorKind::InvalidArgument,
                   "indexes nested deeper than " + std::to_string(kIndexDepthLimit)});
      return;
    }
    if (index.entries.empty()) {
      const Platform& platform = owner_.setup_.platform;
      finish(Error{ErrorKind::NotFound,
                   "no image for " + platform.os + "/" + platform.architecture +
                       (index.platforms.empty() ? "" : ", only for " + index.platforms)});
      return;
    }
    index_digest_ = *wanted_;
    check_platform_ = !index.entries[0].platform.has_value();
    wanted_ = index.entries[0].digest;
    step();
  }

  void use_manifest(const ParsedManifest& parsed, bool complete) {
    const Digest digest = parsed.image.manifest_digest;
    manifest_ = parsed;
    owner_.cache_.touch(digest, owner_.loop_.now());
    if (index_digest_) {
      manifest_.image.index_digest = *index_digest_;
      owner_.cache_.set_index(digest, *index_digest_);
    }
    if (complete) {
      finish(manifest_.image);
      return;
    }
    announced_ = true;
    const std::size_t count = handlers_.size();  // who comes meanwhile is told by add()
    for (std::size_t i = 0; i < count; ++i) {
      const auto on_manifest = handlers_[i].on_manifest;
      on_manifest(manifest_.image);
    }
    fetch_config();
  }

  void fetch_config() {
    if (manifest_.image.config_bytes > static_cast<std::int64_t>(kConfigBytesLimit)) {
      finish(Error{ErrorKind::InvalidArgument,
                   "a config of " + std::to_string(manifest_.image.config_bytes) + " bytes"});
      return;
    }
    RegistryRequest request;
    request.target = target_;
    request.path =
        "/v2/" + target_.repository + "/blobs/" + to_string(manifest_.image.config_digest);
    request.body_limit = static_cast<std::size_t>(manifest_.image.config_bytes);
    owner_.http_.get(std::move(request), [this](Result<HttpResponse> response) {
      const Result<void> taken = take_config(std::move(response));
      if (taken) {
        finish(manifest_.image);
      } else {
        finish(with_context(taken.error(), "config"));
      }
    });
  }

  Result<void> take_config(Result<HttpResponse> response) {
    if (!response) {
      return std::move(response).error();
    }
    const Digest digest = sha256(response->body);
    if (digest != manifest_.image.config_digest) {
      return mismatch("the config from " + target_.host, manifest_.image.config_digest, digest);
    }
    const ImageConfig config = TRY(parse_image_config(response->body));
    if (check_platform_ && !platform_rank(owner_.setup_.platform, config.platform)) {
      return Error{ErrorKind::NotFound,
                   "the image is for " + config.platform.os + "/" + config.platform.architecture};
    }
    TRY(add_config(config, manifest_.image));
    owner_.cache_.add(manifest_, true, owner_.loop_.now());
    return {};
  }

  void finish(Result<ImageManifest> result) {
    const std::vector<ResolveHandlers> handlers = std::exchange(handlers_, {});
    owner_.finish(key_);
    for (const ResolveHandlers& one : handlers) {
      one.done(result);
    }
  }

  RegistryClient& owner_;
  std::string key_;
  ImageReference reference_;
  RegistryTarget target_;
  std::vector<ResolveHandlers> handlers_;
  std::optional<Digest> wanted_;
  std::optional<Digest> fetching_;
  std::optional<Digest> index_digest_;
  ParsedManifest manifest_;
  bool announced_ = false;
  bool check_platform_ = false;
  int depth_ = 0;
};

RegistryClient::RegistryClient(EventLoop& loop, HttpTransport& http, RegistrySetup setup)
    : loop_(loop),
      setup_(std::move(setup)),
      random_(setup_.seed),
      http_(loop,
            http,
            AuthSetup{
                .policy = setup_.policy, .environment = setup_.environment, .random = &random_}) {}

RegistryClient::~RegistryClient() = default;

void RegistryClient::set_policy(const Policy& policy) {
  setup_.policy = policy;
  http_.set_policy(policy);
}

void RegistryClient::resolve(const std::string& image, ResolveHandlers handlers) {
  Result<ImageReference> reference = parse_image_reference(image);
  if (!reference) {
    handlers.done(std::move(reference).error());
    return;
  }
  const std::string key = canonical_image_name(image);
  std::unique_ptr<Resolution>& slot = resolutions_[key];
  if (slot != nullptr) {
    slot->add(std::move(handlers));
    return;
  }
  slot = std::make_unique<Resolution>(*this, key, *std::move(reference));
  Resolution& started = *slot;
  started.add(std::move(handlers));
  started.begin();
}

/// Out of the way at once, so that the same name can be asked for again from inside a handler;
/// destroyed later, since it is still on the stack.
void RegistryClient::finish(const std::string& key) {
  const auto found = resolutions_.find(key);
  if (found == resolutions_.end()) {
    return;
  }
  finished_.push_back(std::move(found->second));
  resolutions_.erase(found);
  loop_.defer([this, alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) {
      finished_.clear();
    }
  });
}

std::optional<Digest> RegistryClient::known_digest(const ImageReference& reference) {
  if (reference.digest) {
    return reference.digest;
  }
  const auto found = tags_.find(reference.name() + ":" + reference.tag);
  if (found == tags_.end() ||
      loop_.now() - found->second.resolved_at >= setup_.policy.tag_lifetime) {
    return std::nullopt;
  }
  return found->second.digest;
}

void RegistryClient::remember_tag(const std::string& key, const Digest& digest) {
  if (tags_.size() >= kTagsMaximum) {
    std::erase_if(tags_, [this](const auto& entry) {
      return loop_.now() - entry.second.resolved_at >= setup_.policy.tag_lifetime;
    });
  }
  if (tags_.size() < kTagsMaximum) {
    tags_[key] = Tag{digest, loop_.now()};
  }
}

void RegistryClient::blob_range(const std::string& image, BlobRange range, Done<std::string> done) {
  const Result<ImageReference> reference = parse_image_reference(image);
  const Result<RegistryTarget> target = reference ? make_target(*reference, setup_.policy)
                                                  : Result<RegistryTarget>(reference.error());
  if (!target) {
    done(target.error());
    return;
  }
  if (!setup_.policy.blob_access) {
    done(Error{ErrorKind::FailedPrecondition, "blobAccess is false"});
    return;
  }
  if (range.offset < 0 || range.length <= 0 || range.length > kRangeLimit) {
    done(Error{ErrorKind::InvalidArgument,
               "a range of " + std::to_string(range.length) + " bytes at " +
                   std::to_string(range.offset)});
    return;
  }
  RegistryRequest request;
  request.target = *target;
  request.path = "/v2/" + target->repository + "/blobs/" + to_string(range.digest);
  request.headers = {"Range: bytes=" + std::to_string(range.offset) + "-" +
                     std::to_string(range.offset + range.length - 1)};
  request.body_limit = static_cast<std::size_t>(range.length);
  http_.get(std::move(request), [range, done = std::move(done)](Result<HttpResponse> response) {
    if (!response) {
      Error error = std::move(response).error();
      if (error.kind == ErrorKind::InvalidArgument) {
        error.kind = ErrorKind::Unimplemented;  // the whole layer came: more than the limit
      }
      done(std::move(error));
      return;
    }
    const bool whole = response->status == 206 &&
                       range_begins_at(response->header("content-range"), range.offset) &&
                       response->body.size() == static_cast<std::size_t>(range.length);
    if (whole) {
      done(std::move(response->body));
    } else {
      done(Error{ErrorKind::Unimplemented, "the registry ignores Range"});
    }
  });
}

}  // namespace imagefs_guard
