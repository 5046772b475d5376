#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/action.h"
#include "testing/core_fixture.h"

namespace baton::engine {
namespace {

using testing::make_request;
using testing::random_tokens;

class SchedulerTest : public ::testing::Test {
 protected:
  void make(int n_blocks, const SchedulerOptions& options = {}) {
    layout_ = testing::StandInModel().kv_layout(n_blocks, TensorType::kBF16);
    memory_.emplace(KvMemory::create(layout_).value());
    cache_.emplace(n_blocks, kv::kBlockTokens);
    scheduler_.emplace(options, *cache_, *memory_);
  }
  Request& add(int n_prompt, int n_choices = 1, int priority = 0) {
    auto request = std::make_unique<Request>();
    request->spec = make_request(random_tokens(n_prompt, 1), 100);
    request->spec.id = RequestId{++n_requests_};
    request->spec.n_choices = n_choices;
    request->spec.priority = priority;
    Request& added = *request;
    scheduler_->add(std::move(request));
    return added;
  }
  Sequence& admit() {
    const Admission admission = scheduler_->plan_admission();
    EXPECT_TRUE(admission.fits);
    scheduler_->apply(admission);
    return *admission.sequence;
  }
  Batch plan_batch(int tokens) {
    Batch batch;
    batch.tokens_left = tokens;
    batch.prompt_logits_left = 32;
    DecodeAction().plan(*scheduler_, batch);
    PrefillAction(mixed_tokens_).plan(*scheduler_, batch);
    return batch;
  }
  /// As after a step: the sequence has computed everything and sampled `token`.
  static void sampled(Sequence& sequence, TokenId token) {
    sequence.request->prompt_done = true;
    sequence.n_computed = sequence.n_tokens();
    sequence.tokens.push_back(token);
  }

  kv::KvLayout layout_;
  std::optional<KvMemory> memory_;
  std::optional<kv::BlockCache> cache_;
  std::optional<Scheduler> scheduler_;
  uint64_t n_requests_ = 0;
  int mixed_tokens_ = 1 << 20;
};

TEST_F(SchedulerTest, AdmissionPlansWithoutChangingAnything) {
  make(10);
  add(100);
  for (int i = 0; i < 3; ++i) {
    const Admission plan = scheduler_->plan_admission();
    EXPECT_TRUE(plan.fits);
    EXPECT_EQ(plan.n_new_blocks, 7);
    EXPECT_EQ(cache_->counts().free, 10);
  }
  admit();
  EXPECT_EQ(cache_->counts().used, 7);
  add(100);
  EXPECT_FALSE(scheduler_->plan_admission().fits);
  EXPECT_EQ(cache_->counts().used, 7);
}

TEST_F(SchedulerTest, TheHeadOfTheQueueIsNotOvertaken) {
  make(10);
  add(60);
  admit();
  add(150);
  add(5);
  EXPECT_FALSE(scheduler_->plan_admission().fits);
}

TEST_F(SchedulerTest, ChunksAreCutAtPanelsAndTheRestGoesToTheNext) {
  make(200);
  add(1000);
  add(1000);
  Batch batch = plan_batch(300);
  ASSERT_EQ(batch.items.size(), 2U);
  EXPECT_EQ(batch.items[0].end, 256);
  EXPECT_EQ(batch.items[1].end, 32) << "44 tokens were left";
  EXPECT_EQ(batch.items[0].n_logits, 0);
}

TEST_F(SchedulerTest, TheTailIsAStepOfItsOwnInDecodeClass) {
  make(200);
  Request& request = add(200);
  Batch first = plan_batch(512);
  ASSERT_EQ(first.items.size(), 1U);
  EXPECT_EQ(first.items[0].end, 192);
  EXPECT_EQ(first.items[0].kernel_class, linalg::KernelClass::kPrefill);
  request.choices[0]->n_computed = 192;
  Batch second = plan_batch(512);
  ASSERT_EQ(second.items.size(), 1U);
  EXPECT_EQ(second.items[0].begin, 192);
  EXPECT_EQ(second.items[0].kernel_class, linalg::KernelClass::kDecode);
  EXPECT_EQ(second.items[0].n_logits, 1);
}

TEST_F(SchedulerTest, PromptsGetLessWhereOthersWaitForTheirNextToken) {
  make(100);
  mixed_tokens_ = 64;
  add(160);
  add(500);
  Batch batch = plan_batch(400);
  ASSERT_EQ(batch.items.size(), 2U);
  EXPECT_EQ(batch.n_tokens(), 144 + 256) << "nobody decodes";
  Sequence& decodes = *batch.items[0].sequence;
  sampled(decodes, 7);
  batch.items[1].sequence->n_computed = 256;
  batch = plan_batch(400);
  ASSERT_EQ(batch.items.size(), 2U);
  EXPECT_TRUE(batch.items[0].decodes);
  EXPECT_EQ(batch.n_tokens(), 1 + 64);
}

TEST_F(SchedulerTest, EchoedPromptsAreCutToTheLogitsThatFit) {
  make(200);
  Request& request = add(200);
  request.spec.n_prompt_logprobs = 0;
  const Batch batch = plan_batch(512);
  ASSERT_EQ(batch.items.size(), 1U);
  EXPECT_EQ(batch.items[0].end, 32);
  EXPECT_EQ(batch.items[0].n_logits, 32);
}

TEST_F(SchedulerTest, DecodePreemptsLowestPriorityThenNewest) {
  make(9);
  add(32, 1, 0);  // oldest
  add(32, 1, 1);  // lowest priority
  add(32, 1, 0);  // newest of the better two
  for (int i = 0; i < 2; ++i) admit();
  Sequence& low = admit();
  EXPECT_EQ(low.request->spec.priority, 1);
  for (Sequence* sequence : scheduler_->running()) sampled(*sequence, 1);
  // All need a third block and three are left: nobody has to go.
  EXPECT_EQ(plan_batch(512).items.size(), 3U);
  EXPECT_EQ(cache_->counts().free, 0);
  for (Sequence* sequence : scheduler_->running()) {
    while (sequence->n_tokens() % kv::kBlockTokens != 0) sequence->tokens.push_back(2);
    sampled(*sequence, 3);
  }
  const Batch batch = plan_batch(512);
  EXPECT_TRUE(batch.preempted);
  EXPECT_EQ(low.state, SequenceState::kWaiting);
  EXPECT_TRUE(low.table.empty());
  EXPECT_EQ(batch.items.size(), 2U);
  EXPECT_EQ(scheduler_->counters().n_preemptions, 1);
}

TEST_F(SchedulerTest, ForkSharesBlocksAndCopiesTheTailOnWrite) {
  make(10);
  Request& request = add(20, 3);
  Sequence& leader = admit();
  std::memset(memory_->data() + layout_.offset(1, leader.table[1]), 0x5A, layout_.block_bytes());
  leader.n_computed = 20;
  scheduler_->fork_followers(leader);
  EXPECT_EQ(cache_->counts().used, 2);
  for (const auto& sequence : request.choices) sampled(*sequence, sequence->choice);
  for (const auto& sequence : request.choices) ASSERT_TRUE(scheduler_->grow(*sequence));
  // The last of three to write has the original for itself.
  EXPECT_EQ(cache_->counts().used, 4);
  EXPECT_EQ(request.choices[0]->table[0], request.choices[2]->table[0]);
  EXPECT_NE(request.choices[0]->table[1], request.choices[2]->table[1]);
  const auto* copy = memory_->data() + layout_.offset(1, request.choices[0]->table[1]);
  EXPECT_EQ(copy[layout_.block_bytes() - 1], std::byte{0x5A});
  for (const auto& sequence : request.choices) scheduler_->finish(*sequence);
  EXPECT_EQ(cache_->counts().used, 0);
}

TEST_F(SchedulerTest, GrowWithoutBlocksChangesNothing) {
  make(3);
  Request& request = add(20, 2);
  Sequence& leader = admit();
  leader.n_computed = 20;
  scheduler_->fork_followers(leader);
  std::vector<BlockId> rest;
  ASSERT_TRUE(cache_->allocate(1, rest));
  for (const auto& sequence : request.choices) sampled(*sequence, 1);
  const auto table = leader.table;
  EXPECT_FALSE(scheduler_->grow(leader));
  EXPECT_EQ(leader.table, table);
  cache_->release(rest);
  EXPECT_TRUE(scheduler_->grow(leader));
}

TEST_F(SchedulerTest, CountsWhatLeavesTheQueueOnce) {
  make(50);
  Request& first = add(20, 2);
  Sequence& leader = admit();
  EXPECT_EQ(scheduler_->counters().n_left_queue, 1);
  scheduler_->preempt(leader);
  admit();
  EXPECT_EQ(scheduler_->counters().n_left_queue, 1);
  for (const auto& sequence : first.choices) scheduler_->finish(*sequence);
  EXPECT_EQ(scheduler_->counters().n_left_queue, 1);
  Request& second = add(20, 2);
  for (const auto& sequence : second.choices) scheduler_->finish(*sequence);
  EXPECT_EQ(scheduler_->counters().n_left_queue, 2);
  EXPECT_FALSE(scheduler_->has_work());
}

}  // namespace
}  // namespace baton::engine
