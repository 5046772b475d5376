#include "base/service_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <new>

#include "base/log.h"

namespace baton {
namespace {

TEST(ServiceThread, RunsUnderItsName) {
  std::string name(16, '\0');
  service_thread("a-name-of-more-than-15-bytes", [&] {
    pthread_getname_np(pthread_self(), name.data(), name.size());
  }).join();
  EXPECT_STREQ(name.c_str(), "a-name-of-more-");
}

// Row 16: a service thread dies of one exception and all later messages stall.
TEST(ServiceThreadDeathTest, Row16_AnExceptionEndsTheProcessWithAReason) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_TRUE(init_logging("error", "text"));
  EXPECT_DEATH(service_thread("heap", [] { throw std::bad_alloc(); }).join(),
               "thread 'heap' has ended by an exception, and so does the process: std::bad_alloc");
  EXPECT_DEATH(service_thread("heap", [] { throw 7; }).join(), "process: of an unknown type");
}

}  // namespace
}  // namespace baton
