#include "probes/kubelet_config.h"

#include <algorithm>
#include <utility>

#include "agent/io/file.h"
#include "agent/wire/kubelet_config.h"

namespace imagefs_guard {
namespace {

constexpr Duration kRefresh = std::chrono::minutes(5);
constexpr Duration kRetryFirst = std::chrono::seconds(1);
constexpr Duration kRetryLimit = std::chrono::seconds(30);
/// Thresholds change with a restart of the kubelet only, which takes it away for seconds. After
/// this it isn't the kubelet that we knew.
constexpr Duration kStaleAfter = std::chrono::minutes(30);

}  // namespace

KubeletConfigProbe::KubeletConfigProbe(KubeApi& kubelet, std::string config_file)
    : kubelet_(kubelet),
      loop_(kubelet.loop()),
      config_file_(std::move(config_file)),
      timer_(loop_.make_timer("kubelet config", [this] { ask(); })),
      retry_(kRetryFirst) {}

void KubeletConfigProbe::start(std::function<void()> changed) {
  changed_ = std::move(changed);
  ask();
}

void KubeletConfigProbe::refresh(std::function<void()> done) {
  done();
}

void KubeletConfigProbe::contribute(NodeSnapshot& snapshot) {
  const bool stale = !error_.empty() && loop_.now() - answered_at_ > kStaleAfter;
  if (!config_.has_value() || stale) {
    snapshot.kubelet.reset();
    snapshot.probe_errors[name()] = error_.empty() ? "not asked yet" : error_;
    return;
  }
  snapshot.probe_errors.erase(name());
  snapshot.kubelet = config_;
}

void KubeletConfigProbe::set_config_file(std::string config_file) {
  if (config_file == config_file_) {
    return;
  }
  config_file_ = std::move(config_file);
  call_.reset();
  retry_ = kRetryFirst;
  ask();
}

void KubeletConfigProbe::ask() {
  if (!config_file_.empty()) {
    Result<std::string> text = read_file(config_file_, kKubeletConfigBytesLimit);
    on_answer(text ? parse_kubelet_configuration(*text)
                   : Result<KubeletConfig>(std::move(text).error()));
    return;
  }
  KubeRequest request;
  request.verb = KubeVerb::Get;
  request.resource = "configz";
  request.path = "/configz";
  request.body_limit = kKubeletConfigBytesLimit;
  call_ = kubelet_.start(std::move(request), [this](Result<std::string> body) {
    call_.reset();
    on_answer(body ? parse_configz(*body) : Result<KubeletConfig>(std::move(body).error()));
  });
}

void KubeletConfigProbe::on_answer(Result<KubeletConfig> answer) {
  if (!answer) {
    error_ =
        (config_file_.empty() ? "kubelet: " : "kubelet configuration: ") + answer.error().message;
    timer_->arm(retry_);
    retry_ = std::min(retry_ * 2, kRetryLimit);
    return;
  }
  error_.clear();
  retry_ = kRetryFirst;
  answered_at_ = loop_.now();
  timer_->arm(kRefresh);
  const bool news = config_ != *answer;
  config_ = *std::move(answer);
  if (news && changed_ != nullptr) {
    changed_();
  }
}

}  // namespace imagefs_guard
