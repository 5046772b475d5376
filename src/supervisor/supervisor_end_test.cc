// What becomes of the children when their supervisor is killed.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "supervisor/test_children.h"

namespace baton::supervisor {
namespace {

std::vector<int> pids_in(const std::string& path) {
  std::vector<int> pids;
  std::ifstream in(path);
  for (int pid = 0; in >> pid;) pids.push_back(pid);
  return pids;
}

TEST(SupervisorEnd, KilledItTakesItsChildrenAlong) {
  const TempDir dir;
  const std::string deaf = fmt::format("trap '' TERM HUP INT; echo $$ >> {}; ", dir / "pids");
  const std::string busy = "while :; do sleep 0.02; done";
  const pid_t host = ::fork();
  if (host == 0) {
    // Ready, starting, and dead again and again.
    auto supervisor = Supervisor::create(
        scripts({deaf + kSayReady + busy, deaf + busy, deaf + kSayReady + busy}), {});
    (void)(*supervisor)->start();
    ::_exit(1);
  }
  ASSERT_TRUE(eventually([&] { return pids_in(dir / "pids").size() == 3; }));
  ::kill(host, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(host, &status, 0), host);
  EXPECT_TRUE(WIFSIGNALED(status));
  for (const int pid : pids_in(dir / "pids")) {
    EXPECT_TRUE(eventually([&] { return !is_running(pid); })) << pid;
  }
}

TEST(SupervisorEnd, TheLifelineEndsWithItsLastWriter) {
  auto lifeline = Pipe::create();
  ASSERT_TRUE(lifeline.has_value());
  const Command command{"/bin/sh", {"sh", "-c", "read -r line <&4; exit 5"}, {}};
  auto child = ChildProcess::spawn(command, lifeline->read_end.get());
  ASSERT_TRUE(child.has_value()) << child.error().message;
  EXPECT_FALSE((*child)->reap().has_value());
  lifeline->write_end.reset();
  std::optional<std::string> how;
  ASSERT_TRUE(eventually([&] { return (how = (*child)->reap()).has_value(); }));
  EXPECT_EQ(*how, "exit status 5");
}

TEST(SupervisorEnd, AChildInheritsNoDescriptorAndNoSignals) {
  const TempDir dir;
  const auto said_by = [&](const std::string& program) {
    auto lifeline = Pipe::create();
    const std::string file = dir / "out";
    auto child = ChildProcess::spawn(
        {"/bin/sh", {"sh", "-c", "exec " + program + " > " + file}, {}}, lifeline->read_end.get());
    EXPECT_TRUE(child && eventually([&] { return (*child)->reap().has_value(); }));
    return read_file(file);
  };
  const int leaky = ::dup(STDERR_FILENO);  // without close-on-exec
  sigset_t before;
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto handler = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(said_by("ls /proc/self/fd"), "0\n1\n2\n3\n4\n5\n");  // 5 is of ls itself
  EXPECT_EQ(said_by("grep -E 'Sig(Blk|Ign)' /proc/self/status"),
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  std::signal(SIGPIPE, handler);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::close(leaky);
}

TEST(SupervisorEnd, AChildIsKilledWithItsOwner) {
  auto lifeline = Pipe::create();
  ASSERT_TRUE(lifeline.has_value());
  int pid = 0;
  {
    auto child = ChildProcess::spawn({"/bin/sh", {"sh", "-c", "exec sleep 1000"}, {}},
                                     lifeline->read_end.get());
    ASSERT_TRUE(child.has_value());
    pid = (*child)->pid();
    EXPECT_TRUE(is_running(pid));
  }
  EXPECT_FALSE(is_running(pid));
}

}  // namespace
}  // namespace baton::supervisor
