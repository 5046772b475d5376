#include "supervisor/supervisor.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "supervisor/ready_line.h"
#include "supervisor/test_children.h"

namespace baton::supervisor {
namespace {

using std::chrono::milliseconds;

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool all_ready(const Supervisor& supervisor) {
  for (const EngineStatus& engine : supervisor.engines()) {
    if (engine.state != ProcessState::kReady) return false;
  }
  return true;
}

/// The error of a start that fails; nothing may be left of it.
Error start_error(SupervisorOptions options) {
  std::vector<int> pids;
  auto supervisor = Supervisor::create(std::move(options), [&](const EngineStatus& engine) {
    if (engine.pid != 0) pids.push_back(engine.pid);
  });
  const Status status = (*supervisor)->start();
  EXPECT_FALSE(status.has_value());
  for (const int pid : pids) EXPECT_FALSE(is_running(pid));
  for (const auto& engine : (*supervisor)->engines()) EXPECT_EQ(engine.state, ProcessState::kDead);
  return status ? Error{} : status.error();
}

TEST(Backoff, DoublesUpToItsMaximumAndStartsAgainAfterALongLife) {
  Backoff backoff({milliseconds(100), milliseconds(1000), milliseconds(60'000)});
  for (const int wait : {100, 200, 400, 800, 1000, 1000}) {
    EXPECT_EQ(backoff.after_death(milliseconds(59'999)).count(), wait);
  }
  EXPECT_EQ(backoff.after_death(milliseconds(60'000)).count(), 100);
  EXPECT_EQ(backoff.after_death(milliseconds(0)).count(), 200);
}

TEST(ReadyLine, SaysUrlOrError) {
  const auto ready = parse_ready_line(ready_line({"http://127.0.0.1:5", 77}));
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->url, "http://127.0.0.1:5");
  EXPECT_EQ(ready->pid, 77);
  const Error error{ErrorCode::kExhausted, "no room for \"\xff\"\n", false};
  const std::string line = failed_line(error);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const auto failed = parse_ready_line(line);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::kExhausted);
  EXPECT_EQ(failed.error().message, "no room for \"\xef\xbf\xbd\"\n");
  for (const char* bad : {"", "{", "[]", "{}", "7", R"({"url":5})", R"({"url":""})", "\xff"}) {
    EXPECT_EQ(parse_ready_line(bad).error().code, ErrorCode::kCorrupt) << bad;
  }
}

TEST(Supervisor, GivesEachEngineItsPlaceInTheWorld) {
  const TempDir dir;
  const auto write_place = [&](const std::string& file) {
    return fmt::format(
        "printf '%s\\n%s\\n' \"$BATON_SHMEM_INIT_CONFIG_JSON_STR\" \"$BATON_INTERNAL_KEY\" > "
        "{0}.new; "
        "mv {0}.new {0}; {1}",
        dir / file, kServe);
  };
  auto options = scripts({write_place("0"), write_place("1"), write_place("2")});
  options.engines[1].pe_start = 3;
  options.engines[2].pe_start = 4;
  options.npes = 6;
  ::setenv("BATON_INTERNAL_KEY", "of another supervisor", 1);
  auto supervisor = Supervisor::create(std::move(options), {});
  ASSERT_TRUE((*supervisor)->start().has_value());
  ::unsetenv("BATON_INTERNAL_KEY");

  std::string uid;
  const auto check = [&](int engine, int pe_start, const char* join) {
    std::ifstream in(dir / std::to_string(engine));
    std::string world_text;
    std::string key;
    std::getline(in, world_text);
    std::getline(in, key);
    const auto world = nlohmann::json::parse(world_text);
    EXPECT_EQ(world["npes"], 6);
    EXPECT_EQ(world["pe_start"], pe_start);
    EXPECT_EQ(world["join"], join);
    EXPECT_TRUE(std::regex_match(world["uid"].get<std::string>(), std::regex("[0-9a-f]{32}")));
    if (uid.empty()) uid = world["uid"];
    EXPECT_EQ(world["uid"], uid);
    EXPECT_EQ(key, (*supervisor)->internal_key());
    EXPECT_EQ(key.size(), 32U);
  };
  check(0, 0, "first");
  check(1, 3, "first");
  check(2, 4, "first");

  std::filesystem::remove(dir / "1");
  ::kill((*supervisor)->engines()[1].pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(dir / "1"); }));
  check(1, 3, "later");
}

TEST(Supervisor, AStartThatFailsNamesTheEngineAndTheReason) {
  const Error died = start_error(scripts({kServe, "exit 3", kServe}));
  EXPECT_EQ(died.message, "engine 1: ended with exit status 3 before it was ready");
  EXPECT_EQ(died.code, ErrorCode::kInternal);
  const Error killed = start_error(scripts({kServe, "kill -9 $$"}));
  EXPECT_EQ(killed.message, "engine 1: ended with signal 9 (Killed) before it was ready");
  const Error said = start_error(
      scripts({R"(echo '{"error":"--kv-memory 1KiB: too small","code":"invalid_argument"}' >&3;)"
               " exec sleep 100"}));
  EXPECT_EQ(said.message, "engine 0: --kv-memory 1KiB: too small");
  EXPECT_EQ(said.code, ErrorCode::kInvalidArgument);
  const Error garbage = start_error(scripts({"echo hello >&3; exec sleep 100"}));
  EXPECT_TRUE(has(garbage.message, "engine 0: wrote 'hello'")) << garbage.message;
  const Error endless = start_error(scripts({"exec base64 -w0 /dev/zero >&3"}));
  EXPECT_TRUE(has(endless.message, "engine 0: wrote 'AAA")) << endless.message;
  auto options = scripts({kServe});
  options.program = "/no/such/program";
  EXPECT_EQ(start_error(std::move(options)).message,
            "engine 0: can't run /no/such/program: No such file or directory");
}

TEST(Supervisor, AnEngineThatIsNeverReadyIsNamedWhenItsTimeIsUp) {
  auto options = scripts({kServe, "exec sleep 1000"});
  options.process.start_timeout = milliseconds(700);
  const Error error = start_error(std::move(options));
  EXPECT_EQ(error.message, "engine 1: not ready after 0.7 s");
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
}

TEST(Supervisor, AnEngineThatMissesOthersSaysWhoIsNotReady) {
  const Error error = start_error(
      scripts({R"(echo '{"error":"no member for PE 1","code":"unavailable"}' >&3; exec sleep 100)",
               "exec sleep 1000"}));
  EXPECT_EQ(error.message, "engine 0: no member for PE 1; not ready either: engine 1");
}

TEST(Supervisor, TheDeadComeBackWheneverTheyDie) {
  std::atomic<int> n_changes = 0;
  auto supervisor = Supervisor::create(scripts({kServe, kServe, kServe}),
                                       [&](const EngineStatus&) { ++n_changes; });
  ASSERT_TRUE((*supervisor)->start().has_value());
  std::mt19937 random(5);
  int n_kills = 0;
  for (int i = 0; i < 25; ++i) {
    const EngineStatus victim = (*supervisor)->engines()[random() % 3];
    if (victim.pid != 0) {
      ::kill(victim.pid, i % 2 == 0 ? SIGKILL : SIGSEGV);
      // Its death, before the next kill: else one process would be killed twice.
      ASSERT_TRUE(eventually([&] {
        return (*supervisor)->engines()[static_cast<size_t>(victim.index)].pid != victim.pid;
      }));
      ++n_kills;
    }
    std::this_thread::sleep_for(milliseconds(random() % 30));
  }
  ASSERT_TRUE(eventually([&] { return all_ready(**supervisor); }));
  int n_restarts = 0;
  for (const EngineStatus& engine : (*supervisor)->engines()) {
    n_restarts += engine.restarts;
    EXPECT_TRUE(is_running(engine.pid));
    EXPECT_EQ(engine.url, "http://127.0.0.1:1");
  }
  EXPECT_EQ(n_restarts, n_kills);
  EXPECT_GT(n_changes, 2 * n_kills);
}

TEST(Supervisor, WhatItSaysOfADeath) {
  auto supervisor = Supervisor::create(scripts({kServe}), {});
  ASSERT_TRUE((*supervisor)->start().has_value());
  EXPECT_EQ((*supervisor)->engines()[0].last_error, "");
  ::kill((*supervisor)->engines()[0].pid, SIGKILL);
  ASSERT_TRUE(eventually([&] { return (*supervisor)->engines()[0].restarts == 1; }));
  EXPECT_EQ((*supervisor)->engines()[0].last_error, "ended with signal 9 (Killed)");
}

TEST(Supervisor, AnEngineThatHangsIsKilledAndComesBack) {
  auto supervisor = Supervisor::create(scripts({kServe, kServe}), {});
  ASSERT_TRUE((*supervisor)->start().has_value());
  const EngineStatus before = (*supervisor)->engines()[1];
  ::kill(before.pid, SIGSTOP);
  (*supervisor)->kill_hung(1, 7, "seen in another life");
  (*supervisor)->kill_hung(1, 0, "nothing was heard of it");
  (*supervisor)->kill_hung(1, 0, "said twice");
  ASSERT_TRUE(eventually(
      [&] { return (*supervisor)->engines()[1].restarts == 1 && all_ready(**supervisor); }));
  const EngineStatus after = (*supervisor)->engines()[1];
  EXPECT_NE(after.pid, before.pid);
  EXPECT_EQ(after.last_error.rfind("hung and was killed: ", 0), 0U) << after.last_error;
  EXPECT_FALSE(is_running(before.pid));
  EXPECT_EQ((*supervisor)->engines()[0].restarts, 0);
}

TEST(Supervisor, ARestartThatFailsIsTriedAgain) {
  const TempDir dir;
  // Serves the first time and from the third on.
  const std::string script =
      fmt::format("echo >> {0}; [ $(wc -l < {0}) -ne 2 ] || exit 7; ", dir / "n") + kServe;
  auto supervisor = Supervisor::create(scripts({script}), {});
  ASSERT_TRUE((*supervisor)->start().has_value());
  ::kill((*supervisor)->engines()[0].pid, SIGKILL);
  ASSERT_TRUE(eventually(
      [&] { return (*supervisor)->engines()[0].restarts == 2 && all_ready(**supervisor); }));
  EXPECT_EQ((*supervisor)->engines()[0].last_error, "ended with exit status 7 before it was ready");
}

TEST(Supervisor, StopLetsThemEndAndKillsThoseThatDoNot) {
  auto obedient = Supervisor::create(scripts({kServe, kServe}), {});
  ASSERT_TRUE((*obedient)->start().has_value());
  EXPECT_TRUE((*obedient)->stop(std::chrono::seconds(60)));
  EXPECT_EQ((*obedient)->engines()[0].state, ProcessState::kDead);
  EXPECT_EQ((*obedient)->engines()[0].last_error, "");

  std::vector<ProcessState> seen;
  const std::string deaf = "trap '' TERM; " + kSayReady + "while :; do sleep 0.02; done";
  auto stubborn = Supervisor::create(scripts({deaf}), [&](const EngineStatus& engine) {
    if (seen.empty() || seen.back() != engine.state) seen.push_back(engine.state);
  });
  ASSERT_TRUE((*stubborn)->start().has_value());
  const int pid = (*stubborn)->engines()[0].pid;
  EXPECT_FALSE((*stubborn)->stop(milliseconds(50)));
  EXPECT_FALSE(is_running(pid));
  EXPECT_EQ(seen, (std::vector{ProcessState::kStarting, ProcessState::kReady,
                               ProcessState::kDraining, ProcessState::kDead}));
}

TEST(Supervisor, AStartCanBeInterrupted) {
  std::atomic<int> pid = 0;
  auto supervisor =
      Supervisor::create(scripts({"exec sleep 1000"}), [&](const EngineStatus& engine) {
        if (engine.pid != 0) pid = engine.pid;
      });
  std::thread other([&] {
    EXPECT_TRUE(eventually([&] { return pid != 0; }));
    (*supervisor)->interrupt();
  });
  const Status status = (*supervisor)->start();
  other.join();
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  EXPECT_FALSE(is_running(pid));

  auto early = Supervisor::create(scripts({kServe}), {});
  (*early)->interrupt();
  EXPECT_FALSE((*early)->start().has_value());
}

TEST(Supervisor, NoDescriptorIsLeft) {
  const int before = n_open_fds();
  {
    auto supervisor = Supervisor::create(scripts({kServe, kServe}), {});
    ASSERT_TRUE((*supervisor)->start().has_value());
    for (int i = 0; i < 5; ++i) {
      const EngineStatus engine = (*supervisor)->engines()[1];
      ::kill(engine.pid, SIGKILL);
      ASSERT_TRUE(eventually([&] {
        return (*supervisor)->engines()[1].restarts == i + 1 && all_ready(**supervisor);
      }));
    }
  }
  EXPECT_EQ(n_open_fds(), before);
}

}  // namespace
}  // namespace baton::supervisor
