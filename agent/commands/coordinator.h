#pragma once
/// `imagefs-guard coordinator`: while elected, looks every 30 s for Jobs whose agent died between
/// suspend and resume, and every minute for nodes whose agent is gone; asks decide_coordinator()
/// what to do about them and does it. Merges what the nodes have learned about layer sizes. Made by
/// main.cc and by tests.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/actions/clean_node.h"
#include "agent/actions/confirm_pod_gone.h"
#include "agent/actions/emit_event.h"
#include "agent/actions/resume_job.h"
#include "agent/commands/coordinator_sizes.h"
#include "agent/core/coordinator.h"
#include "agent/io/loop.h"
#include "agent/kube/api_client.h"
#include "agent/kube/job_store.h"
#include "agent/kube/lease_keeper.h"
#include "agent/kube/lister.h"

namespace imagefs_guard {

struct CoordinatorSettings {
  std::string namespace_name = "imagefs-guard";
  std::string identity;  // the pod's name
  std::string taint_key;
};

class Coordinator {
 public:
  /// `api` outlives it.
  Coordinator(KubeApi& api, CoordinatorSettings settings);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  void start();

  /// Gives the Lease back, then calls back; begins nothing new.
  void shut_down(std::function<void()> done);

 private:
  void on_timer();
  void list_jobs();
  void list_nodes();
  void list_leases();
  void list_agents();
  void merge_sizes();
  void decide();
  void request_decision();
  void run(const CoordinatorAction& action);
  void on_outcome(const std::string& key, std::optional<Error> error);
  void log_failure(const char* what, const Error& error) const;
  void log_election();

  KubeApi& api_;
  CoordinatorSettings settings_;
  LeaseKeeper lease_;
  JobStore store_;
  Lister lister_;
  CoordinatorSizes sizes_;
  ResumeJobRunner resume_job_;
  ConfirmPodGoneRunner confirm_pod_gone_;
  CleanNodeRunner clean_node_;
  EmitEventRunner emit_event_;
  std::unique_ptr<Timer> timer_;
  ClusterSnapshot snapshot_;
  CoordinatorMemory memory_;
  std::multiset<std::string> running_;
  std::set<std::string> logged_;
  int round_ = 0;
  bool elected_ = false;
  bool decision_requested_ = false;
  bool stopping_ = false;
};

}  // namespace imagefs_guard
