// For the tests: engines that are shell scripts, and what is to be known about processes.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "supervisor/supervisor.h"

namespace baton::supervisor {

inline const std::string kSayReady = R"(echo '{"url":"http://127.0.0.1:1","pid":'$$'}' >&3; )";
/// Serves until SIGTERM, at which it ends properly.
inline const std::string kServe = kSayReady + "trap 'exit 0' TERM; while :; do sleep 0.02; done";

/// A folder of its own for each test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = std::filesystem::temp_directory_path() / "supervisor_test_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Polls, generously: a busy machine may be slow, and a test that passes doesn't wait.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// False for a zombie too.
inline bool is_running(int pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const size_t end_of_name = stat.rfind(')');
  return end_of_name != std::string::npos && stat[end_of_name + 2] != 'Z';
}

inline int n_open_fds() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++n;
  return n;
}

/// Engines named "engine 0", … that run these scripts, with quick restarts.
inline SupervisorOptions scripts(const std::vector<std::string>& texts) {
  SupervisorOptions options;
  options.program = "/bin/sh";
  options.program_name = "sh";
  for (size_t i = 0; i < texts.size(); ++i) {
    EngineSpec spec;
    spec.name = "engine " + std::to_string(i);
    spec.pe_start = static_cast<int>(i);
    spec.arguments = {"-c", texts[i]};
    options.engines.push_back(std::move(spec));
  }
  options.npes = static_cast<int>(texts.size());
  options.process.start_timeout = std::chrono::seconds(60);
  options.process.backoff.first = std::chrono::milliseconds(5);
  options.process.backoff.max = std::chrono::milliseconds(20);
  return options;
}

}  // namespace baton::supervisor
