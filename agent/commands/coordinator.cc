#include "agent/commands/coordinator.h"

#include <algorithm>
#include <utility>

#include "agent/io/log.h"
#include "agent/wire/cluster_json.h"

namespace imagefs_guard {

namespace {

constexpr Duration kRound = std::chrono::seconds(30);
/// Nodes are looked at in every second round: nothing of theirs is urgent.
constexpr int kNodeRounds = 2;
constexpr const char* kLeaseName = "imagefs-guard-coordinator";
constexpr const char* kController = "imagefs-guard.io/coordinator";
constexpr const char* kAgentSelector =
    "app.kubernetes.io/name=imagefs-guard,app.kubernetes.io/component=agent";

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

const char* event_of(const CoordinatorAction& action) {
  return std::visit(Overloaded{
                        [](const ResumeJob&) { return "job_resumed"; },
                        [](const ConfirmPodGone&) { return "pod_gone_asked"; },
                        [](const CleanNode&) { return "node_cleaned"; },
                        [](const EmitEvent&) { return "event_told"; },
                    },
                    action);
}

}  // namespace

Coordinator::Coordinator(KubeApi& api, CoordinatorSettings settings)
    : api_(api),
      settings_(std::move(settings)),
      lease_(api,
             {.namespace_name = settings_.namespace_name,
              .name = kLeaseName,
              .identity = settings_.identity,
              .elects = true},
             [this] { log_election(); }),
      store_(api.loop(), [this] { request_decision(); }),
      lister_(api),
      sizes_(api, settings_.namespace_name),
      resume_job_(api, store_),
      confirm_pod_gone_(api, store_),
      clean_node_(api, settings_.taint_key),
      emit_event_(api, settings_.identity, kController),
      timer_(api.loop().make_timer("coordinator", [this] { on_timer(); })) {}

void Coordinator::start() {
  lease_.start();
  timer_->arm(kRound / 10);
}

void Coordinator::shut_down(std::function<void()> done) {
  stopping_ = true;
  timer_->disarm();
  lease_.release(std::move(done));
}

void Coordinator::on_timer() {
  timer_->arm(kRound);
  if (lease_.holding() && !stopping_) {
    list_jobs();
  }
}

void Coordinator::list_jobs() {
  auto jobs = std::make_shared<std::vector<Job>>();
  lister_.start(
      {.resource = "jobs",
       .path = "/apis/batch/v1/jobs",
       .label_selector = "imagefs-guard.io/hold=true"},
      [jobs](std::string_view json) -> Result<ListMetadata> {
        JobList list = TRY(parse_job_list(json));
        std::ranges::move(list.jobs, std::back_inserter(*jobs));
        return std::move(list.metadata);
      },
      [this, jobs](const std::optional<Error>& error) {
        snapshot_.held_jobs.reset();
        if (error.has_value()) {
          log_failure("held Jobs", *error);
        } else {
          snapshot_.held_jobs = std::move(*jobs);
        }
        if (round_++ % kNodeRounds == 0) {
          merge_sizes();
          list_nodes();
        } else {
          decide();
        }
      });
}

void Coordinator::list_nodes() {
  snapshot_.nodes.reset();
  snapshot_.leases.reset();
  snapshot_.agent_nodes.reset();
  auto nodes = std::make_shared<std::vector<MarkedNode>>();
  lister_.start(
      {.resource = "nodes",
       .path = "/api/v1/nodes",
       .label_selector = "imagefs-guard.io/stage",
       .metadata_only = true},
      [nodes](std::string_view json) { return parse_marked_nodes(json, *nodes); },
      [this, nodes](const std::optional<Error>& error) {
        if (error.has_value()) {
          log_failure("marked nodes", *error);
          decide();
          return;
        }
        snapshot_.nodes = std::move(*nodes);
        list_leases();
      });
}

void Coordinator::list_leases() {
  auto leases = std::make_shared<std::vector<AgentLease>>();
  lister_.start(
      {.resource = "leases",
       .path = "/apis/coordination.k8s.io/v1/namespaces/" +
               percent_encode(settings_.namespace_name) + "/leases"},
      [leases](std::string_view json) { return parse_agent_leases(json, *leases); },
      [this, leases](const std::optional<Error>& error) {
        if (error.has_value()) {
          log_failure("the agents' Leases", *error);
          decide();
          return;
        }
        std::ranges::sort(*leases, {}, &AgentLease::node);
        snapshot_.leases = std::move(*leases);
        list_agents();
      });
}

void Coordinator::list_agents() {
  auto nodes = std::make_shared<std::vector<std::string>>();
  lister_.start(
      {.resource = "pods",
       .path = "/api/v1/namespaces/" + percent_encode(settings_.namespace_name) + "/pods",
       .label_selector = kAgentSelector},
      [nodes](std::string_view json) { return parse_agent_nodes(json, *nodes); },
      [this, nodes](const std::optional<Error>& error) {
        if (error.has_value()) {
          log_failure("the agents' pods", *error);
        } else {
          std::ranges::sort(*nodes);
          snapshot_.agent_nodes = std::move(*nodes);
        }
        decide();
      });
}

/// Beside the rest: nothing waits for it, and nothing but it fails.
void Coordinator::merge_sizes() {
  sizes_.run([this](const std::optional<Error>& error) {
    if (error.has_value()) {
      log_failure("learned layer sizes", *error);
    }
  });
}

void Coordinator::request_decision() {
  if (decision_requested_ || stopping_) {
    return;
  }
  decision_requested_ = true;
  api_.loop().defer([this] {
    decision_requested_ = false;
    decide();
  });
}

void Coordinator::decide() {
  if (stopping_ || !lease_.holding()) {
    return;
  }
  NodeSnapshot answers;
  store_.contribute(answers);
  snapshot_.pod_checks = std::move(answers.pod_checks);
  snapshot_.taken_at = api_.loop().now();
  snapshot_.wall_time = api_.loop().wall_now();
  snapshot_.running.assign(running_.begin(), running_.end());
  CoordinatorDecision decision = decide_coordinator(snapshot_, memory_);
  memory_ = std::move(decision.memory);
  snapshot_.outcomes.clear();
  for (const std::string& what : decision.left_alone) {
    if (logged_.insert(what).second) {
      log({.level = LogLevel::Warn,
           .event = "hold_left_alone",
           .logger = "coordinator",
           .message = what,
           .fields = {}});
    }
  }
  constexpr std::size_t kLoggedMaximum = 1000;
  if (logged_.size() > kLoggedMaximum) {
    logged_.clear();
  }
  for (const CoordinatorAction& action : decision.actions) {
    run(action);
  }
}

void Coordinator::run(const CoordinatorAction& action) {
  log({.level = LogLevel::Info,
       .event = event_of(action),
       .logger = "coordinator",
       .message = describe(action),
       .fields = {}});
  const std::string key = action_key(action);
  running_.insert(key);
  ActionDone done = [this, key](std::optional<Error> error) { on_outcome(key, std::move(error)); };
  std::visit(Overloaded{
                 [&](const ResumeJob& a) { resume_job_.start(a, std::move(done)); },
                 [&](const ConfirmPodGone& a) { confirm_pod_gone_.start(a, std::move(done)); },
                 [&](const CleanNode& a) { clean_node_.start(a, std::move(done)); },
                 [&](const EmitEvent& a) { emit_event_.start(a, std::move(done)); },
             },
             action);
}

void Coordinator::on_outcome(const std::string& key, std::optional<Error> error) {
  const auto running = running_.find(key);
  if (running != running_.end()) {
    running_.erase(running);
  }
  if (error.has_value()) {
    log_failure(key.c_str(), *error);
  }
  snapshot_.outcomes.push_back({.key = key, .error = std::move(error)});
}

void Coordinator::log_failure(const char* what, const Error& error) const {
  log({.level = LogLevel::Warn,
       .event = "coordinator_failed",
       .logger = "coordinator",
       .message = std::string(what) + ": " + error.message,
       .fields = {{"err", std::string(to_string(error.kind))}}});
}

void Coordinator::log_election() {
  const bool holding = lease_.holding();
  if (holding == elected_) {
    return;
  }
  elected_ = holding;
  if (holding) {
    sizes_.forget();
  }
  log({.level = LogLevel::Info,
       .event = holding ? "elected" : "not_elected",
       .logger = "coordinator",
       .message = holding ? "coordinates the agents" : "another coordinator is at work",
       .fields = {}});
}

}  // namespace imagefs_guard
