// Requests with long bodies: prepared on the frontend's own thread, answered on the strand.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <nlohmann/json.hpp>
#include <thread>

#include "frontend/frontend_test_support.h"

namespace baton::frontend {
namespace {

constexpr const char* kSmallTokenize = R"({"prompt":"hi"})";

/// The body with so much white space that it is a big one.
std::string big(const std::string& body) {
  return body + std::string(Frontend::kLargeBodyBytes, ' ');
}

/// A fixture whose codec stops at the text "block" until released, and counts the texts it saw.
struct BlockingFixture : Fixture {
  BlockingFixture() {
    codec->before_encode = [this](std::string_view text) {
      ++n_encoded;
      if (text != "block") return;
      blocked.set_value();
      released.get_future().wait();
    };
  }
  /// Sends the request that keeps the worker busy, and waits until it does.
  std::shared_ptr<FakeExchange> block() {
    auto exchange = post("/tokenize", big(R"({"prompt":"block"})"));
    blocked.get_future().wait();
    return exchange;
  }
  void release() { released.set_value(); }

  std::promise<void> blocked;
  std::promise<void> released;
  std::atomic<int> n_encoded{0};
};

TEST(BigRequest, IsPreparedOffTheStrandAndAnsweredOnIt) {
  Fixture fixture;
  std::thread::id encoder;
  fixture.codec->before_encode = [&](std::string_view) { encoder = std::this_thread::get_id(); };
  const auto small = fixture.post("/tokenize", kSmallTokenize);
  EXPECT_EQ(small->response->status, 200);
  EXPECT_EQ(encoder, std::this_thread::get_id());

  const auto exchange = fixture.post("/tokenize", big(kSmallTokenize));
  EXPECT_FALSE(exchange->response.has_value());
  exchange->wait_and_run_posted();
  EXPECT_NE(encoder, std::this_thread::get_id());
  EXPECT_EQ(exchange->response->status, 200);
  EXPECT_EQ(exchange->json()["count"], 3);
}

TEST(BigRequest, GenerationBeginsOnTheStrand) {
  Fixture fixture;
  const auto exchange = fixture.post("/v1/completions", big(R"({"prompt":"hi"})"));
  while (!exchange->has_posted()) std::this_thread::yield();
  EXPECT_TRUE(fixture.backend.requests.empty());
  exchange->run_posted();
  ASSERT_EQ(fixture.backend.requests.size(), 1U);
  fixture.backend.prompt(0);
  fixture.backend.text(0, 0, "ok", FinishReason::kStop);
  exchange->run_posted();
  EXPECT_EQ(exchange->json()["choices"][0]["text"], "ok");
}

TEST(BigRequest, ErrorsAreAnsweredToo) {
  Fixture fixture;
  const auto exchange = fixture.post("/v1/chat/completions", big("{"));
  exchange->wait_and_run_posted();
  EXPECT_EQ(exchange->response->status, 400);
  EXPECT_TRUE(exchange->response->headers.at("X-Request-Id").starts_with("chatcmpl-"));
}

TEST(BigRequest, OthersAreAnsweredMeanwhile) {
  BlockingFixture fixture;
  const auto first = fixture.block();
  EXPECT_EQ(fixture.get("/health")->response->status, 200);
  EXPECT_EQ(fixture.post("/tokenize", kSmallTokenize)->response->status, 200);
  const auto second = fixture.post("/tokenize", big(kSmallTokenize));
  EXPECT_FALSE(first->has_posted());
  EXPECT_FALSE(second->has_posted());
  fixture.release();
  first->wait_and_run_posted();
  second->wait_and_run_posted();
  EXPECT_EQ(first->response->status, 200);
  EXPECT_EQ(second->response->status, 200);
}

TEST(BigRequest, OfAClientThatLeftTheQueueIsForgotten) {
  BlockingFixture fixture;
  const auto first = fixture.block();
  auto gone = fixture.post("/tokenize", big(kSmallTokenize));
  const auto third = fixture.post("/tokenize", big(kSmallTokenize));
  const std::weak_ptr<FakeExchange> weak = gone;
  gone->close();
  gone.reset();
  EXPECT_TRUE(weak.expired()) << "the queue still holds the request";
  fixture.release();
  first->wait_and_run_posted();
  third->wait_and_run_posted();
  EXPECT_EQ(third->response->status, 200);
  EXPECT_EQ(fixture.n_encoded, 2) << "the request of the client that left was tokenised";
}

TEST(BigRequest, OfAClientThatLeavesWhileItIsPreparedGetsNoFurther) {
  BlockingFixture fixture;
  const auto first = fixture.post("/v1/completions", big(R"({"prompt":"block"})"));
  fixture.blocked.get_future().wait();
  first->close();
  fixture.release();
  fixture.frontend.reset();  // joins the worker
  EXPECT_FALSE(first->has_posted());
  EXPECT_EQ(first.use_count(), 1);
}

TEST(BigRequest, OfAClientThatLeavesAfterwardsReachesNoBackend) {
  Fixture fixture;
  const auto exchange = fixture.post("/v1/completions", big(R"({"prompt":"hi"})"));
  while (!exchange->has_posted()) std::this_thread::yield();
  exchange->close();
  exchange->run_posted();
  EXPECT_TRUE(fixture.backend.requests.empty());
}

TEST(BigRequest, AnExceptionCostsThatRequestOnly) {
  Fixture fixture;
  fixture.codec->before_encode = [](std::string_view text) {
    if (text == "bad") throw std::bad_alloc();
  };
  const std::string bad = R"({"prompt":"bad"})";
  const auto large = fixture.post("/tokenize", big(bad));
  large->wait_and_run_posted();
  for (const auto& exchange : {large, fixture.post("/tokenize", bad)}) {
    EXPECT_EQ(exchange->response->status, 500);
    EXPECT_EQ(exchange->json()["error"]["type"], "server_error");
    EXPECT_TRUE(exchange->response->headers.contains("X-Request-Id"));
  }
  const auto good = fixture.post("/tokenize", big(kSmallTokenize));
  good->wait_and_run_posted();
  EXPECT_EQ(good->response->status, 200);
}

TEST(BigRequest, WhatWaitsWhenTheFrontendEndsIsLetGo) {
  BlockingFixture fixture;
  const auto first = fixture.block();
  const auto second = fixture.post("/tokenize", big(kSmallTokenize));
  std::thread releaser([&] {
    // Later than the destructor's beginning, most likely; right in any case.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fixture.release();
  });
  fixture.frontend.reset();
  releaser.join();
  first->drop_posted();
  second->drop_posted();
  EXPECT_EQ(first.use_count(), 1);
  EXPECT_EQ(second.use_count(), 1);
}

}  // namespace
}  // namespace baton::frontend
