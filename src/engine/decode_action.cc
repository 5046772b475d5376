#include "engine/action.h"

namespace baton::engine {

void DecodeAction::plan(Scheduler& scheduler, Batch& batch) {
  // Best first, and victims are taken from the other end: whoever has a row keeps it.
  for (size_t i = 0; i < scheduler.running().size(); ++i) {
    Sequence* sequence = scheduler.running()[i];
    if (!sequence->decoding()) continue;
    bool ready = scheduler.grow(*sequence);
    while (!ready) {
      Sequence* victim = scheduler.worst();
      scheduler.preempt(*victim);
      batch.preempted = true;
      if (victim == sequence) break;
      ready = scheduler.grow(*sequence);
    }
    if (!ready) continue;
    batch.add(decode_row(*sequence));
  }
}

}  // namespace baton::engine
