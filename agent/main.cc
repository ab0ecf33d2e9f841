// untested: wiring; tests/integration runs the whole agent.
// Flags → policy → wiring → loop. The only file that names concrete types: which probes there
// are, which actions, and what they talk through.

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "agent/actions/cancel_pull.h"
#include "agent/actions/confirm_pod_gone.h"
#include "agent/actions/delete_job.h"
#include "agent/actions/delete_pod.h"
#include "agent/actions/emit_event.h"
#include "agent/actions/fetch_job.h"
#include "agent/actions/mark_disruption.h"
#include "agent/actions/reclaim_image.h"
#include "agent/actions/record_drain.h"
#include "agent/actions/resume_job.h"
#include "agent/actions/set_condition.h"
#include "agent/actions/set_node_metadata.h"
#include "agent/actions/set_taint.h"
#include "agent/actions/suspend_job.h"
#include "agent/agent.h"
#include "agent/commands/check.h"
#include "agent/commands/check_text.h"
#include "agent/commands/coordinator.h"
#include "agent/commands/flags.h"
#include "agent/commands/flight_recorder.h"
#include "agent/commands/policy_file.h"
#include "agent/commands/process_usage.h"
#include "agent/commands/replay.h"
#include "agent/commands/status_text.h"
#include "agent/core/reclaim.h"
#include "agent/core/verify.h"
#include "agent/io/file.h"
#include "agent/io/grpc.h"
#include "agent/io/http.h"
#include "agent/io/http_counter.h"
#include "agent/io/http_server.h"
#include "agent/io/log.h"
#include "agent/io/loop.h"
#include "agent/io/memory.h"
#include "agent/kube/api_client.h"
#include "agent/kube/job_store.h"
#include "agent/kube/lease_keeper.h"
#include "agent/kube/size_exchange.h"
#include "agent/registry/layer_sizes.h"
#include "agent/registry/learned_sizes.h"
#include "agent/registry/manifest_store.h"
#include "agent/registry/reference.h"
#include "agent/registry/registry_client.h"
#include "agent/runtime/containerd.h"
#include "agent/runtime/hold.h"
#include "agent/runtime/lease_manifests.h"
#include "agent/status/pages.h"
#include "agent/wire/cluster_json.h"
#include "agent/wire/registry_json.h"
#include "probes/filesystem.h"
#include "probes/kubelet_config.h"
#include "probes/node.h"
#include "probes/pods.h"
#include "probes/runtime.h"

namespace imagefs_guard {
namespace {

constexpr int kExitUsage = 78;  // EX_CONFIG: restarting will not help
/// A Docker config.json; real ones have a few kilobytes.
constexpr std::size_t kLoginsBytesLimit = std::size_t{256} << 10;
constexpr int kExitUnknown = 2;  // of `check` and `replay`
/// The agent answers from memory; a busy node takes longer to give it a turn.
constexpr Duration kStatusTimeout = std::chrono::seconds(5);
/// The agent's Lease: one write a minute; five missed ones, and the coordinator calls it gone.
constexpr Duration kLeaseRenewal = std::chrono::minutes(1);
/// A port that somebody else has: this node is guarded all the same.
constexpr Duration kListenRetry = std::chrono::seconds(10);

/// The first decision is made by then.
constexpr Duration kHistoryFirst = std::chrono::seconds(1);

/// By then every probe has its first answer and TLS its connections; what is needed from now on
/// comes back into memory by itself.
constexpr Duration kSettled = std::chrono::seconds(20);

/// Layers of which containerd is asked the size in one tick: it knows, each costs a small call.
constexpr std::size_t kMeasuredAtOnce = 32;

/// Who this process is, among others of its kind: unique even on the host's network.
std::string make_identity(std::uint64_t seed) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + "_" + std::to_string(seed % 1'000'000'000);
}

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

/// What the agent itself knows, as one more part of the snapshot: manifests, sizes and holds.
/// Stands last in the list of probes, since it looks at what the others saw.
class OwnState final : public Probe {
 public:
  OwnState(ManifestStore& manifests,
           LearnedSizes& learned,
           LayerSizes& sizes,
           SizeExchange& exchange,
           LeaseManifests& leases,
           HoldKeeper& holds,
           JobStore& jobs,
           LeaseKeeper& lease,
           RuntimeProbe& runtime)
      : manifests_(manifests),
        learned_(learned),
        sizes_(sizes),
        exchange_(exchange),
        leases_(leases),
        holds_(holds),
        jobs_(jobs),
        lease_(lease),
        runtime_(runtime) {}

  [[nodiscard]] const char* name() const override { return "own"; }

  void start(std::function<void()> changed) override { changed_ = std::move(changed); }

  void refresh(std::function<void()> done) override { done(); }

  void contribute(NodeSnapshot& snapshot) override {
    manifests_.contribute(snapshot);
    learned_.contribute(snapshot);
    sizes_.contribute(snapshot);
    tell_sizes(snapshot);
    leases_.look(snapshot, [this](const Digest& digest) { return manifests_.is_complete(digest); });
    snapshot.holds = holds_.holds();
    jobs_.contribute(snapshot);
    snapshot.rival_agent = lease_.rival();
    std::vector<Digest> to_measure = learned_.to_measure();
    if (snapshot.runtime.has_value()) {
      for (const ActiveExtract& extract : snapshot.runtime->extracts) {
        to_measure.push_back(extract.chain_id);
      }
      const std::vector<Digest> unmeasured = unmeasured_layers(*snapshot.runtime, kMeasuredAtOnce);
      to_measure.insert(to_measure.end(), unmeasured.begin(), unmeasured.end());
    }
    runtime_.measure(to_measure);
  }

  void changed() const {
    if (changed_) {
      changed_();
    }
  }

 private:
  void tell_sizes(const NodeSnapshot& snapshot) {
    if (learned_.version() != told_version_ && snapshot.node.has_value()) {
      told_version_ = learned_.version();
      exchange_.publish(learned_.to_tell(), snapshot.node->uid);
    }
  }

  ManifestStore& manifests_;
  LearnedSizes& learned_;
  LayerSizes& sizes_;
  SizeExchange& exchange_;
  std::size_t told_version_ = 0;
  LeaseManifests& leases_;
  HoldKeeper& holds_;
  JobStore& jobs_;
  LeaseKeeper& lease_;
  RuntimeProbe& runtime_;
  std::function<void()> changed_;
};

/// Everything that `run` is made of, in the order in which it is made; gone in reverse.
class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> create(RunOptions options,
                                                Policy policy,
                                                PolicyFile policy_file) {
    auto loop = TRY(EventLoop::create());
    auto http = TRY(make_curl_transport(*loop));
    auto containerd = TRY(make_grpc_client(*loop, options.containerd_socket, "k8s.io"));
    std::optional<RingFile> ring;
    if (!options.record_path.empty()) {
      auto opened =
          RingFile::open(options.record_path, static_cast<std::size_t>(options.record_bytes));
      if (!opened) {
        return with_context(opened.error(), "--record");
      }
      ring.emplace(*std::move(opened));
    }
    return std::unique_ptr<Daemon>(new Daemon(std::move(loop),
                                              std::move(http),
                                              std::move(containerd),
                                              std::move(ring),
                                              std::move(options),
                                              std::move(policy),
                                              std::move(policy_file)));
  }

  int run() {
    for (const int signal : {SIGTERM, SIGINT}) {
      loop_->on_signal(signal, [this] { stop(); });
    }
    log({.level = LogLevel::Info,
         .event = "agent_started",
         .logger = "main",
         .message = policy_.mode == Mode::Observe ? "watches this node, intervenes in nothing"
                                                  : "guards this node",
         .fields = {{"containerd_socket", options_.containerd_socket},
                    {"kubernetes_api", options_.kubernetes_api}}});
    agent_.start();
    lease_.start();
    size_exchange_.start();
    listen();
    policy_timer_->arm(policy_.tick_interval);
    history_timer_->arm(kHistoryFirst);
    settled_timer_->arm(kSettled);
    return loop_->run();
  }

 private:
  Daemon(std::unique_ptr<EventLoop> loop,
         std::unique_ptr<HttpTransport> http,
         std::unique_ptr<GrpcClient> grpc,
         std::optional<RingFile> ring,
         RunOptions options,
         Policy policy,
         PolicyFile policy_file)
      : options_(std::move(options)),
        policy_(std::move(policy)),
        policy_file_(std::move(policy_file)),
        loop_(std::move(loop)),
        http_(std::move(http)),
        registry_http_(*http_),
        grpc_(std::move(grpc)),
        api_(*loop_,
             *http_,
             {.base_url = options_.kubernetes_api,
              .token_file = options_.kubernetes_token_file,
              .ca_file = options_.kubernetes_ca_file,
              .seed = seed_}),
        kubelet_api_(*loop_,
                     *http_,
                     {.base_url = options_.kubelet_url,
                      .token_file = options_.kubernetes_token_file,
                      .ca_file = options_.kubelet_ca_file,
                      .seed = seed_ + 1}),
        containerd_(*grpc_, policy_.snapshotter),
        registry_(*loop_,
                  registry_http_,
                  {.policy = policy_, .environment = process_environment(), .seed = seed_ + 2}),
        manifests_(*loop_, registry_, [this] { own_state_.changed(); }),
        layer_sizes_(registry_, [this] { own_state_.changed(); }),
        size_exchange_(api_,
                       {.namespace_name = options_.namespace_name, .node_name = options_.node_name},
                       {.own =
                            [this](const std::vector<SizeRecord>& records) {
                              learned_sizes_.restore(records);
                              own_state_.changed();
                            },
                        .merged =
                            [this](std::vector<SizeRecord> records) {
                              learned_sizes_.set_elsewhere(std::move(records));
                              own_state_.changed();
                            },
                        .trouble = [](const Error& error) { log_sizes_trouble(error); }}),
        lease_manifests_(containerd_,
                         [this](ImageManifest manifest) {
                           manifests_.add_from_content_store(std::move(manifest));
                           own_state_.changed();
                         }),
        holds_(*loop_, containerd_, {.changed = [this] { own_state_.changed(); }}),
        jobs_(*loop_, [this] { own_state_.changed(); }),
        lease_(api_,
               {.namespace_name = options_.namespace_name,
                .name = agent_lease_name(options_.node_name),
                .identity = make_identity(seed_),
                .duration = 5 * kLeaseRenewal,
                .renew_every = kLeaseRenewal,
                .retry_every = kLeaseRenewal},
               [this] { log_lease(); }),
        filesystem_(*loop_,
                    {.image_path = options_.image_path, .kubelet_path = options_.kubelet_path}),
        runtime_(*loop_, containerd_),
        own_state_(manifests_,
                   learned_sizes_,
                   layer_sizes_,
                   size_exchange_,
                   lease_manifests_,
                   holds_,
                   jobs_,
                   lease_,
                   runtime_),
        kubelet_config_(kubelet_api_, policy_.kubelet_config_file),
        pods_(api_, options_.node_name),
        node_(api_, options_.node_name),
        cancel_pull_(*loop_, containerd_),
        reclaim_image_(
            containerd_,
            [this] { return available_bytes(); },
            [](const ReclaimImage& action, std::int64_t grown) { log_removed(action, grown); }),
        set_taint_(api_, options_.node_name),
        set_node_metadata_(api_, options_.node_name),
        set_condition_(api_, options_.node_name),
        emit_event_(api_, options_.node_name),
        fetch_job_(api_, jobs_),
        suspend_job_(api_, jobs_, policy_),
        resume_job_(api_, jobs_),
        record_drain_(api_, jobs_, options_.node_name),
        mark_disruption_(api_, policy_),
        delete_pod_(api_, policy_),
        confirm_pod_gone_(api_, jobs_),
        delete_job_(api_, jobs_),
        recorder_(make_recorder(std::move(ring))),
        agent_(
            {.loop = loop_.get(),
             .policy = policy_,
             .probes = {&filesystem_, &runtime_, &kubelet_config_, &pods_, &node_, &own_state_},
             .set_holds = [this](const std::vector<HoldPull>& pulls) { holds_.set_desired(pulls); },
             .set_watchful = [this](bool watchful) { runtime_.set_watchful(watchful); },
             .canonical_image =
                 [](const std::string& image) { return canonical_image_name(image); },
             .run_action = [this](const Action& action,
                                  ActionDone done) { run_action(action, std::move(done)); },
             .record =
                 [this](const TraceTick& tick) {
                   if (recorder_.has_value()) {
                     recorder_->note(tick);
                   }
                 }}) {}

  static std::optional<FlightRecorder> make_recorder(std::optional<RingFile> ring) {
    if (!ring.has_value()) {
      return std::nullopt;
    }
    return std::optional<FlightRecorder>(std::in_place, *std::move(ring), [](const Error& error) {
      log({.level = LogLevel::Warn,
           .event = "recording_stopped",
           .logger = "main",
           .message = "records nothing any more: " + error.message,
           .fields = {{"err", std::string(to_string(error.kind))}}});
    });
  }

  /// The pages of agent/status. Without them the kubelet's probes fail, so a port that is not to be
  /// had now is asked for again.
  void listen() {
    if (options_.listen.empty()) {
      return;
    }
    auto address = parse_listen_address(options_.listen);
    VERIFY(address.has_value());  // parse_command_line() has seen it
    auto server = make_http_server(*loop_, *address, [this](const PageRequest& request) {
      return answer_page(request, status_view());
    });
    if (server) {
      server_ = *std::move(server);
      log({.level = LogLevel::Info,
           .event = "listening",
           .logger = "main",
           .message = "serves health and metrics on port " + std::to_string(server_->port()),
           .fields = {{"port", std::int64_t{server_->port()}}}});
      return;
    }
    log({.level = LogLevel::Warn,
         .event = "listen_failed",
         .logger = "main",
         .message = server.error().message,
         .fields = {}});
    listen_timer_->arm(kListenRetry);
  }

  [[nodiscard]] StatusView status_view() const {
    std::vector<ProbeView> probes = agent_.probe_views();
    std::erase_if(probes, [this](const ProbeView& p) { return p.name == own_state_.name(); });
    return {.decision = agent_.decision(),
            .snapshot = agent_.snapshot(),
            .policy = policy_,
            .counters = agent_.counters(),
            .api_requests = api_.request_counts(),
            .kubelet_requests = kubelet_api_.request_counts(),
            .registry_requests = registry_http_.counts(),
            .history = history_,
            .node_name = options_.node_name,
            .version = kVersion,
            .decided = agent_.has_decided(),
            .decision_age = agent_.decision_age(),
            .decision_age_limit = agent_.decision_age_limit(),
            .probes = std::move(probes),
            .policy_file = policy_view_,
            .process = process_usage(started_at_)};
  }

  void note_space() {
    history_timer_->arm(kHistoryStep);
    if (const auto sample = sample_of(agent_.decision(), loop_->wall_now())) {
      history_.add(*sample);
    }
  }

  void look_at_policy() {
    policy_timer_->arm(policy_.tick_interval);
    std::optional<Result<Policy>> changed = policy_file_.poll();
    if (!changed.has_value()) {
      return;
    }
    if (*changed) {
      if (const auto refusal = why_not_now(policy_, **changed)) {
        changed = Result<Policy>(*refusal);
      }
    }
    if (!*changed) {
      refuse_policy(changed->error());
    } else if (**changed != policy_ || !policy_view_.refusal.empty()) {
      take_policy(**std::move(changed));
    }
  }

  void refuse_policy(const Error& error) {
    ++policy_view_.refused;
    policy_view_.refusal = error.message;
    log({.level = LogLevel::Error,
         .event = "policy_refused",
         .logger = "main",
         .message = "keeps the policy that it has: " + error.message,
         .fields = {}});
    const std::optional<Node>& node = agent_.snapshot().node;
    if (node.has_value()) {
      emit_event_.start({.regarding = {.api_version = "v1",
                                       .kind = "Node",
                                       .namespace_name = {},
                                       .name = node->name,
                                       .uid = node->uid},
                         .warning = true,
                         .event_reason = "PolicyRefused",
                         .event_action = "KeepPolicy",
                         .note = "imagefs-guard keeps the policy that it has: " + error.message},
                        log_failure("the Event PolicyRefused"));
    }
  }

  void take_policy(Policy next) {
    ++policy_view_.taken;
    policy_view_.refusal.clear();
    const bool only_looks_now = policy_.mode == Mode::Enforce && next.mode == Mode::Observe;
    policy_ = std::move(next);  // the actions' runners look at this one
    registry_.set_policy(policy_);
    containerd_.set_snapshotter(policy_.snapshotter);
    kubelet_config_.set_config_file(policy_.kubelet_config_file);
    if (only_looks_now) {
      // Holds go with the next decision; the taint would stay, since observe mode sets none.
      set_taint_.start({.key = policy_.taint_key,
                        .value = {},
                        .effect = TaintEffect::None,
                        .reason = "mode observe"},
                       log_failure("the taint"));
    }
    agent_.set_policy(policy_);
    log({.level = LogLevel::Info,
         .event = "policy_taken",
         .logger = "main",
         .message = policy_.mode == Mode::Observe ? "takes the new policy: observe"
                                                  : "takes the new policy: enforce",
         .fields = {}});
  }

  static ActionDone log_failure(const char* what) {
    return [what](std::optional<Error> error) {
      if (error.has_value()) {
        log({.level = LogLevel::Warn,
             .event = "action_failed",
             .logger = "main",
             .message = std::string(what) + ": " + error->message,
             .fields = {{"err", std::string(to_string(error->kind))}}});
      }
    };
  }

  void run_action(const Action& action, ActionDone done) {
    std::visit(Overloaded{
                   [&](const FetchManifest& a) { manifests_.fetch(a.image, std::move(done)); },
                   [&](const CancelPull& a) { cancel_pull_.start(a, std::move(done)); },
                   [&](const ReclaimImage& a) { reclaim_image_.start(a, std::move(done)); },
                   [&](const SetTaint& a) { set_taint_.start(a, std::move(done)); },
                   [&](const SetNodeMetadata& a) { set_node_metadata_.start(a, std::move(done)); },
                   [&](const SetCondition& a) { set_condition_.start(a, std::move(done)); },
                   [&](const EmitEvent& a) { emit_event_.start(a, std::move(done)); },
                   [&](const FetchJob& a) { fetch_job_.start(a, std::move(done)); },
                   [&](const SuspendJob& a) { suspend_job_.start(a, std::move(done)); },
                   [&](const ResumeJob& a) { resume_job_.start(a, std::move(done)); },
                   [&](const RecordDrain& a) { record_drain_.start(a, std::move(done)); },
                   [&](const MarkDisruption& a) { mark_disruption_.start(a, std::move(done)); },
                   [&](const DeletePod& a) { delete_pod_.start(a, std::move(done)); },
                   [&](const ConfirmPodGone& a) { confirm_pod_gone_.start(a, std::move(done)); },
                   [&](const DeleteJob& a) { delete_job_.start(a, std::move(done)); },
                   // Holds are kept by HoldKeeper, from the decision as a whole.
                   [&](const HoldPull&) { done(std::nullopt); },
                   [&](const ReleasePull&) { done(std::nullopt); },
               },
               action);
  }

  /// Of the image filesystem, this very moment; -1 = can't be read.
  [[nodiscard]] std::int64_t available_bytes() const {
    const auto filesystems = read_filesystems(
        {.image_path = options_.image_path, .kubelet_path = options_.kubelet_path});
    if (!filesystems) {
      return -1;
    }
    const auto images = std::ranges::find(*filesystems, true, &Filesystem::holds_images);
    return images == filesystems->end() ? -1 : images->available_bytes;
  }

  static void log_removed(const ReclaimImage& action, std::int64_t grown_bytes) {
    log({.level = LogLevel::Info,
         .event = "image_removed",
         .logger = "agent",
         .message = "removed the unused image " + action.image,
         .fields = {{"image", action.image},
                    {"digest", to_string(action.image_id)},
                    {"bytes_expected", action.expected_bytes},
                    {"bytes_grown", grown_bytes}}});
  }

  /// Sizes are then learned anew: worth a line, not a taint.
  static void log_sizes_trouble(const Error& error) {
    log({.level = LogLevel::Warn,
         .event = "sizes_trouble",
         .logger = "main",
         .message = "learned layer sizes: " + error.message,
         .fields = {{"err", std::string(to_string(error.kind))}}});
  }

  /// Without the Lease the coordinator takes this node's marks off; a rival stops the drains.
  void log_lease() {
    const std::optional<std::string> rival = lease_.rival();
    std::string trouble =
        rival.has_value() ? "another agent claims this node: " + *rival : lease_.error();
    if (trouble != lease_trouble_ && !trouble.empty()) {
      log({.level = LogLevel::Warn,
           .event = "lease_trouble",
           .logger = "main",
           .message = "the Lease of this node's agent: " + trouble,
           .fields = {}});
    }
    lease_trouble_ = std::move(trouble);
  }

  void stop() {
    if (stopping_) {
      return;
    }
    stopping_ = true;
    log({.level = LogLevel::Info,
         .event = "agent_stopping",
         .logger = "main",
         .message = "stops; held pulls are cancelled and come back to the next agent",
         .fields = {}});
    lease_.release([] {});
    agent_.shut_down([this] { loop_->exit(0); });
  }

  RunOptions options_;
  Policy policy_;
  PolicyFile policy_file_;
  PolicyView policy_view_;
  std::uint64_t seed_ = std::random_device{}();
  bool stopping_ = false;
  std::unique_ptr<EventLoop> loop_;
  WallTime started_at_ = loop_->wall_now();
  std::unique_ptr<HttpTransport> http_;
  HttpCounter registry_http_;
  std::unique_ptr<GrpcClient> grpc_;
  KubeApi api_;
  KubeApi kubelet_api_;
  Containerd containerd_;
  RegistryClient registry_;
  ManifestStore manifests_;
  LearnedSizes learned_sizes_;
  LayerSizes layer_sizes_;
  SizeExchange size_exchange_;
  LeaseManifests lease_manifests_;
  HoldKeeper holds_;
  JobStore jobs_;
  LeaseKeeper lease_;
  std::string lease_trouble_;
  FilesystemProbe filesystem_;
  RuntimeProbe runtime_;
  OwnState own_state_;
  KubeletConfigProbe kubelet_config_;
  PodsProbe pods_;
  NodeProbe node_;
  CancelPullRunner cancel_pull_;
  ReclaimImageRunner reclaim_image_;
  SetTaintRunner set_taint_;
  SetNodeMetadataRunner set_node_metadata_;
  SetConditionRunner set_condition_;
  EmitEventRunner emit_event_;
  FetchJobRunner fetch_job_;
  SuspendJobRunner suspend_job_;
  ResumeJobRunner resume_job_;
  RecordDrainRunner record_drain_;
  MarkDisruptionRunner mark_disruption_;
  DeletePodRunner delete_pod_;
  ConfirmPodGoneRunner confirm_pod_gone_;
  DeleteJobRunner delete_job_;
  std::optional<FlightRecorder> recorder_;
  Agent agent_;
  std::unique_ptr<Timer> policy_timer_ =
      loop_->make_timer("policy file", [this] { look_at_policy(); });
  SpaceHistory history_;
  std::unique_ptr<Timer> settled_timer_ =
      loop_->make_timer("settled", [] { release_program_pages(); });
  std::unique_ptr<Timer> history_timer_ =
      loop_->make_timer("space history", [this] { note_space(); });
  std::unique_ptr<Timer> listen_timer_ = loop_->make_timer("listen", [this] { listen(); });
  std::unique_ptr<HttpServer> server_;
};

int fail(const Error& error) {
  std::fprintf(stderr, "imagefs-guard: %s\n", error.message.c_str());
  return kExitUsage;
}

int run_command(RunOptions options) {
  PolicyFile policy_file(options.policy_file);
  auto policy = policy_file.load();
  if (!policy) {
    return fail(policy.error());
  }
  // A disk guard must not write a core dump to the disk that it guards.
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  configure_log(options.log_format, options.log_level, options.node_name);
  auto daemon = Daemon::create(std::move(options), std::move(*policy), std::move(policy_file));
  if (!daemon) {
    return fail(daemon.error());
  }
  return (*daemon)->run();
}

int coordinator_command(const CoordinatorOptions& options) {
  const auto policy = PolicyFile(options.policy_file).load();
  if (!policy) {
    return fail(policy.error());
  }
  configure_log(options.log_format, options.log_level, "");
  auto loop = EventLoop::create();
  if (!loop) {
    return fail(loop.error());
  }
  auto http = make_curl_transport(**loop);
  if (!http) {
    return fail(http.error());
  }
  const std::uint64_t seed = std::random_device{}();
  KubeApi api(**loop,
              **http,
              {.base_url = options.kubernetes_api,
               .token_file = options.kubernetes_token_file,
               .ca_file = options.kubernetes_ca_file,
               .seed = seed});
  Coordinator coordinator(api,
                          {.namespace_name = options.namespace_name,
                           .identity = make_identity(seed),
                           .taint_key = policy->taint_key});
  for (const int signal : {SIGTERM, SIGINT}) {
    (*loop)->on_signal(signal, [&] { coordinator.shut_down([&] { (*loop)->exit(0); }); });
  }
  coordinator.start();
  return (*loop)->run();
}

/// Of the terminal that the table goes to; 0 where it goes elsewhere: nothing is cut there.
int table_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const char* columns = std::getenv("COLUMNS");
  return columns == nullptr ? 0 : static_cast<int>(std::strtol(columns, nullptr, 10));
}

/// What `check` is made of. The node's part is there only where it is about this node.
class CheckWorld {
 public:
  static Result<std::unique_ptr<CheckWorld>> create(const CheckOptions& options, Policy policy) {
    auto loop = TRY(EventLoop::create());
    auto http = TRY(make_curl_transport(*loop));
    std::unique_ptr<GrpcClient> grpc;
    if (!options.volume.has_value()) {
      grpc = TRY(make_grpc_client(*loop, options.containerd_socket, "k8s.io"));
    }
    return std::unique_ptr<CheckWorld>(new CheckWorld(
        std::move(loop), std::move(http), std::move(grpc), options, std::move(policy)));
  }

  int run() {
    check_->start([this](const CheckReport& report) { finish(report); });
    return loop_->run();
  }

 private:
  CheckWorld(std::unique_ptr<EventLoop> loop,
             std::unique_ptr<HttpTransport> http,
             std::unique_ptr<GrpcClient> grpc,
             const CheckOptions& options,
             Policy policy)
      : options_(options),
        loop_(std::move(loop)),
        http_(std::move(http)),
        grpc_(std::move(grpc)),
        kubelet_api_(*loop_,
                     *http_,
                     {.base_url = options_.kubelet_url,
                      .token_file = options_.kubernetes_token_file,
                      .ca_file = options_.kubelet_ca_file,
                      .seed = seed_}),
        api_(*loop_,
             *http_,
             {.base_url = options_.kubernetes_api,
              .token_file = options_.kubernetes_token_file,
              .ca_file = options_.kubernetes_ca_file,
              .seed = seed_ + 2}),
        registry_(*loop_,
                  *http_,
                  {.policy = policy,
                   .environment = process_environment(),
                   .platform = options_.platform,
                   .seed = seed_ + 1}),
        manifests_(*loop_, registry_, [] {}),
        sizes_(registry_, [] {}) {
    CheckParts parts{.loop = loop_.get(),
                     .manifests = &manifests_,
                     .sizes = &sizes_,
                     .leases = nullptr,
                     .probes = {},
                     .measure = {}};
    if (grpc_ != nullptr) {
      add_node(policy, parts);
    }
    check_ = std::make_unique<Check>(std::move(parts), options_, std::move(policy));
  }

  void add_node(const Policy& policy, CheckParts& parts) {
    containerd_ = std::make_unique<Containerd>(*grpc_, policy.snapshotter);
    leases_ = std::make_unique<LeaseManifests>(*containerd_, [this](ImageManifest manifest) {
      manifests_.add_from_content_store(std::move(manifest));
    });
    probes_.push_back(std::make_unique<FilesystemProbe>(
        *loop_,
        FilesystemPaths{.image_path = options_.image_path, .kubelet_path = options_.kubelet_path}));
    auto runtime = std::make_unique<RuntimeProbe>(*loop_, *containerd_);
    parts.measure = [raw = runtime.get()](const std::vector<Digest>& layers) {
      raw->measure(layers);
    };
    probes_.push_back(std::move(runtime));
    probes_.push_back(
        std::make_unique<KubeletConfigProbe>(kubelet_api_, policy.kubelet_config_file));
    parts.leases = leases_.get();
    if (!options_.kubernetes_api.empty() && !options_.node_name.empty()) {
      probes_.push_back(std::make_unique<PodsProbe>(api_, options_.node_name));
      add_learned_sizes(parts);
    }
    for (const auto& probe : probes_) {
      parts.probes.push_back(probe.get());
    }
  }

  /// What the nodes have learned: read only, nothing is told.
  void add_learned_sizes(CheckParts& parts) {
    exchange_ = std::make_unique<SizeExchange>(
        api_,
        SizeExchangeOptions{.namespace_name = options_.namespace_name,
                            .node_name = options_.node_name},
        SizeExchangeHandlers{
            .own = [this](const std::vector<SizeRecord>& records) { learned_.restore(records); },
            .merged =
                [this](std::vector<SizeRecord> records) {
                  learned_.set_elsewhere(std::move(records));
                },
            .trouble = [](const Error&) {}});  // sizes are asked of the registry then
    parts.learned = &learned_;
    parts.exchange = exchange_.get();
  }

  void finish(const CheckReport& report) {
    const CheckSubject subject{
        .name = options_.volume.has_value() ? options_.volume->name : "this node",
        .assumption = options_.volume.has_value() ? options_.volume->assumption : std::string()};
    const std::string text =
        options_.json
            ? check_json(report, subject)
            : check_table(report, subject, {.columns = table_columns(), .layers = options_.layers});
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    loop_->exit(exit_code_of(report.verdict));
  }

  CheckOptions options_;
  std::uint64_t seed_ = std::random_device{}();
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HttpTransport> http_;
  std::unique_ptr<GrpcClient> grpc_;
  KubeApi kubelet_api_;
  KubeApi api_;
  RegistryClient registry_;
  ManifestStore manifests_;
  LayerSizes sizes_;
  LearnedSizes learned_;
  std::unique_ptr<SizeExchange> exchange_;
  std::unique_ptr<Containerd> containerd_;
  std::unique_ptr<LeaseManifests> leases_;
  std::vector<std::unique_ptr<Probe>> probes_;
  std::unique_ptr<Check> check_;
};

int fail_check(const Error& error) {
  fail(error);
  return kExitUnknown;
}

/// A login file that is named must be one; the agent itself goes on without.
Result<void> check_registry_config(const std::string& path) {
  if (path.empty()) {
    return {};
  }
  const std::string text = TRY(read_file(path, kLoginsBytesLimit));
  const auto logins = parse_docker_config(text);
  if (!logins) {
    return with_context(logins.error(), path);
  }
  return {};
}

int check_command(const CheckOptions& options) {
  configure_log(LogFormat::Text, LogLevel::Error, "");
  auto policy = PolicyFile(options.policy_file).load();
  if (!policy) {
    return fail_check(policy.error());
  }
  if (const auto config = check_registry_config(options.registry_config_file); !config) {
    return fail_check(config.error());
  }
  for (const std::string& image : options.images) {
    if (const auto reference = parse_image_reference(image); !reference) {
      return fail_check(reference.error());
    }
  }
  auto world = CheckWorld::create(options, policy_for_check(*std::move(policy), options));
  return world ? (*world)->run() : fail_check(world.error());
}

/// What the agent's port says; one request, no retry.
Result<std::string> ask_agent(const std::string& address) {
  auto loop = TRY(EventLoop::create());
  auto http = TRY(make_curl_transport(*loop));
  Result<std::string> answer = std::string();
  const auto call = http->start(
      {.url = "http://" + address + "/status.json",
       .connect_timeout = kStatusTimeout,
       .total_timeout = kStatusTimeout},
      [&](Result<HttpResponse> response) {
        if (!response) {
          answer = std::move(response).error();
        } else if (response->status != 200) {
          answer = Error{ErrorKind::Unavailable, "status " + std::to_string(response->status)};
        } else {
          answer = std::move(response->body);
        }
        loop->exit(0);
      });
  loop->run();
  return answer;
}

int status_command(const StatusOptions& options) {
  const auto answer = ask_agent(options.address);
  if (!answer) {
    fail(with_context(answer.error(), "no agent answers on " + options.address));
    return 1;
  }
  const auto text = status_text(*answer, table_columns());
  if (!text) {
    fail(text.error());
    return 1;
  }
  std::fputs(options.json ? answer->c_str() : text->c_str(), stdout);
  return 0;
}

int replay_command(const ReplayOptions& options) {
  const auto trace = read_file(options.trace_file, kTraceBytesMaximum);
  if (!trace) {
    return fail_check(with_context(trace.error(), options.trace_file));
  }
  std::optional<Policy> policy;
  if (!options.policy_file.empty()) {
    auto loaded = PolicyFile(options.policy_file).load();
    if (!loaded) {
      return fail_check(loaded.error());
    }
    policy = *std::move(loaded);
  }
  const auto report = replay_trace(*trace, policy);
  if (!report) {
    return fail_check(with_context(report.error(), options.trace_file));
  }
  std::fputs(report->text.c_str(), stdout);
  return report->differing == 0 ? 0 : 1;
}

}  // namespace
}  // namespace imagefs_guard

int main(int count, char** arguments) {
  using namespace imagefs_guard;
  const std::vector<std::string> words(arguments + 1, arguments + count);
  auto line = parse_command_line(words, [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  });
  if (!line) {
    return is_check(words) || is_replay(words) ? fail_check(line.error()) : fail(line.error());
  }
  if (line->print.has_value()) {
    std::fputs(line->print->c_str(), stdout);
    return 0;
  }
  if (line->check.has_value()) {
    return check_command(*line->check);
  }
  if (line->status.has_value()) {
    return status_command(*line->status);
  }
  if (line->replay.has_value()) {
    return replay_command(*line->replay);
  }
  return line->coordinator.has_value() ? coordinator_command(*line->coordinator)
                                       : run_command(std::move(*line->run));
}
