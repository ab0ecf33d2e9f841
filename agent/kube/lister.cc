#include "agent/kube/lister.h"

#include <utility>

namespace imagefs_guard {

namespace {

constexpr int kPageSize = 500;
/// 20,000 objects: more than the largest cluster has nodes.
constexpr int kPagesMaximum = 40;

}  // namespace

void Lister::start(ListSpec spec, Page page, Done done) {
  spec_ = std::move(spec);
  page_ = std::move(page);
  done_ = std::move(done);
  continue_token_.clear();
  pages_ = 0;
  request();
}

void Lister::request() {
  ++pages_;
  KubeRequest request;
  request.verb = KubeVerb::List;
  request.resource = spec_.resource;
  request.path = spec_.path;
  request.query = "limit=" + std::to_string(kPageSize);
  if (!spec_.label_selector.empty()) {
    request.query += "&labelSelector=" + percent_encode(spec_.label_selector);
  }
  if (!continue_token_.empty()) {
    request.query += "&continue=" + percent_encode(continue_token_);
  }
  request.metadata_only = spec_.metadata_only;
  call_ = api_.start(std::move(request),
                     [this](Result<std::string> reply) { on_page(std::move(reply)); });
}

void Lister::on_page(Result<std::string> reply) {
  if (!reply) {
    finish(std::move(reply).error());
    return;
  }
  Result<ListMetadata> metadata = page_(*reply);
  if (!metadata) {
    finish(with_context(std::move(metadata).error(), "list " + spec_.resource));
    return;
  }
  continue_token_ = metadata->continue_token;
  if (continue_token_.empty()) {
    finish(std::nullopt);
  } else if (pages_ >= kPagesMaximum) {
    finish(Error{
        ErrorKind::ResourceExhausted,
        "list " + spec_.resource + ": more than " + std::to_string(kPagesMaximum) + " pages"});
  } else {
    request();
  }
}

void Lister::finish(std::optional<Error> error) {
  call_.reset();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(error));  // may start the next one, or destroy this
}

}  // namespace imagefs_guard
