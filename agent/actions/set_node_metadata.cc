// untested: here; node_patch_test.cc covers both runners that share it

#include "agent/actions/set_node_metadata.h"

#include <utility>

#include "agent/wire/kube_patch.h"

namespace imagefs_guard {

SetNodeMetadataRunner::SetNodeMetadataRunner(KubeApi& api, const std::string& node_name)
    : patch_(api, node_name, "") {}

void SetNodeMetadataRunner::start(const SetNodeMetadata& action, ActionDone done) {
  patch_.start(KubeVerb::MergePatch, metadata_patch(action), std::move(done));
}

}  // namespace imagefs_guard
