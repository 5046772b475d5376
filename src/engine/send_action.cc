#include <algorithm>

#include "engine/action.h"

namespace baton::engine {

void SendAction::plan(Scheduler& scheduler, Batch& batch) {
  for (Sequence* sequence : scheduler.running()) {
    const Request& request = *sequence->request;
    if (!request.send) continue;
    // What a chunk of this step computes is put while it is computed.
    const bool unsent = sequence->n_computed > std::max(request.send->begin, request.send->n_put);
    if (unsent || sequence->n_left() == 0) batch.cached_sends.push_back(sequence);
  }
}

}  // namespace baton::engine
