#include "base/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace baton {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class TraceTest : public ::testing::Test {
 protected:
  ~TraceTest() override { std::filesystem::remove(path_); }
  const std::string path_ = ::testing::TempDir() + "baton_trace_test.json";
};

TEST_F(TraceTest, WritersShareAFileThatTheFirstOneCompletes) {
  {
    std::ofstream(path_) << "of an earlier run";
    const auto first = Trace::open(path_, "router").value();
    {
      const auto second = Trace::open(path_, "engine", Trace::Mode::kJoin).value();
      second->add({.name = "decode", .begin_ns = 1000, .end_ns = 3000});
      first->add({.name = "queue"});
    }
    const auto third = Trace::open(path_, "engine again", Trace::Mode::kJoin).value();
    third->add({.name = "decode"});
  }
  const std::string text = read(path_);
  EXPECT_EQ(text.substr(0, 3), "[\n{");
  EXPECT_EQ(text.substr(text.size() - 6), "]}}\n]\n");
  EXPECT_EQ(count(text, "]\n"), 1);
  EXPECT_EQ(count(text, "\n,"), 0);
  EXPECT_EQ(count(text, "process_name"), 3);
  EXPECT_EQ(count(text, "\"decode\""), 2);
  EXPECT_EQ(count(text, "\"ts\":1.000,\"dur\":2.000"), 1);
}

TEST_F(TraceTest, ArgumentsAreWrittenWhenTheyAreThere) {
  {
    const auto trace = Trace::open(path_, "engine").value();
    const std::vector<std::string> labels = {"a\"b\\c\n", "d"};
    trace->add({.name = "put", .requests = labels, .n_tokens = 16, .layer = 3, .n_bytes = 512});
    trace->add({.name = "queue", .requests = std::span(labels).last(1)});
  }
  const std::string text = read(path_);
  EXPECT_EQ(count(text, R"("args":{"tokens":16,"layer":3,"bytes":512,"requests":["a\"b\\c","d"]})"),
            1)
      << text;
  EXPECT_EQ(count(text, R"("args":{"tokens":0,"requests":["d"]})"), 1);
}

}  // namespace
}  // namespace baton
