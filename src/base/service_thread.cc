#include "base/service_thread.h"

#include <pthread.h>

#include <cstdlib>
#include <exception>
#include <utility>

#include "base/log.h"

namespace baton {
namespace {

constexpr size_t kMaxSystemName = 15;  // Linux refuses longer ones

[[noreturn]] void end_process(const std::string& name, const char* reason) {
  spdlog::critical("the thread '{}' has ended by an exception, and so does the process: {}", name,
                   reason);
  spdlog::default_logger()->flush();
  std::abort();
}

}  // namespace

std::thread service_thread(std::string name, std::function<void()> body) {
  return std::thread([name = std::move(name), body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.substr(0, kMaxSystemName).c_str());
    try {
      body();
    } catch (const std::exception& e) {
      end_process(name, e.what());
    } catch (...) {
      end_process(name, "of an unknown type");
    }
  });
}

}  // namespace baton
