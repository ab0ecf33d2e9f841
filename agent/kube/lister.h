#pragma once
/// Lists a collection once, page by page: for what is looked at now and then and not worth a watch.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "agent/core/result.h"
#include "agent/kube/api_client.h"
#include "agent/wire/kube_json.h"

namespace imagefs_guard {

struct ListSpec {
  std::string resource;  // for counters: "jobs"
  std::string path;      // "/apis/batch/v1/jobs"
  std::string label_selector;
  bool metadata_only = false;  // PartialObjectMetadata: no spec, no status
};

class Lister {
 public:
  using Page = std::function<Result<ListMetadata>(std::string_view)>;
  using Done = std::function<void(std::optional<Error>)>;

  /// `api` outlives it.
  explicit Lister(KubeApi& api) : api_(api) {}

  Lister(const Lister&) = delete;
  Lister& operator=(const Lister&) = delete;

  /// Ends one that runs without a callback. A list that changes too much while it is read
  /// (410) is an error: the caller asks again later.
  void start(ListSpec spec, Page page, Done done);

 private:
  void request();
  void on_page(Result<std::string> reply);
  void finish(std::optional<Error> error);

  KubeApi& api_;
  ListSpec spec_;
  Page page_;
  Done done_;
  std::string continue_token_;
  int pages_ = 0;
  std::unique_ptr<KubeCall> call_;
};

}  // namespace imagefs_guard
